// Several files of a folder at once with the pages alone: chosen by boxes, ranges and keys, moved, copied, renamed, taken as one
// zip, deleted and brought back; the same by forms where there is no script; and a folder that goes to the trash and comes back.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// A folder of this name with `a.txt` to `f.txt` and an empty directory `into`: its page, and where its files are.
async function folder(page, name) {
  await page.goto(`${house.origin}/folders`);
  await page.fill("#name", name);
  await page.click("form[action='/folders'] button");
  await page.locator("a.nm", { hasText: name }).click();
  await page.locator("h1", { hasText: name }).waitFor();
  const place = page.url().split("?")[0];
  const id = new URL(place).pathname.split("/")[2];
  const files = join(house.environment.FARDEL_DATA, "folders", id.slice(-2), id, "data");
  mkdirSync(join(files, "into"));
  for (const letter of "abcdef") writeFileSync(join(files, `${letter}.txt`), letter);
  await page.goto(place);
  return { place, files };
}

const marked = (page) => page.locator("tbody tr:has(input[name=id]:checked) a.nm").allInnerTexts();
const box = (page, name) => page.locator("tr", { hasText: name }).locator("input[name=id]");

test("rows are chosen by boxes, ranges and keys, and all of them move, are copied and come as one zip", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const { place, files } = await folder(page, "chosen");
  assert.equal(await page.locator("#marked").isVisible(), false);
  await box(page, "b.txt").click();
  await box(page, "e.txt").click({ modifiers: ["Shift"] });
  assert.deepEqual(await marked(page), ["b.txt", "c.txt", "d.txt", "e.txt"]);
  await page.locator("#marked-count", { hasText: "4 entries selected" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("#marked button[type=reset]");
  // By keys alone: to the second row, marked, with two more.
  await page.locator("td a.nm", { hasText: "into" }).focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Space");
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Shift+ArrowDown");
  assert.deepEqual(await marked(page), ["a.txt", "b.txt", "c.txt"]);
  await page.keyboard.press("Control+a");
  assert.equal((await marked(page)).length, 7);
  await page.click("#marked button[type=reset]");
  await box(page, "a.txt").check();
  await box(page, "b.txt").check();
  await page.click("#marked button[value=move]");
  await page.locator("dialog.question[open] #to").waitFor();
  assert.deepEqual(await violations(page), []);
  // A place that is not there is said at its field, and what was chosen stays.
  await page.fill("dialog #to", "none");
  await page.click("dialog form button");
  await page.locator("#to[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#to"), "none");
  assert.ok(existsSync(join(files, "a.txt")));
  await page.fill("#to", "into");
  await page.click("form[action$='/selection'] button");
  await page.locator("[role=status]", { hasText: "Entries moved: 2" }).first().waitFor();
  assert.equal(readFileSync(join(files, "into/b.txt"), "utf8"), "b");
  await box(page, "c.txt").check();
  await box(page, "d.txt").check();
  await page.click("#marked button[value=copy]");
  await page.fill("dialog #to", "into");
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "Entries copied: 2" }).first().waitFor();
  assert.ok(existsSync(join(files, "c.txt")) && existsSync(join(files, "into/c.txt")));
  await box(page, "into").check();
  await box(page, "f.txt").check();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.click("#marked button[formaction$='/zip']"),
  ]);
  assert.equal(download.suggestedFilename(), "chosen.zip");
  const zip = readFileSync(await download.path()).toString("latin1");
  for (const name of ["into/", "into/a.txt", "f.txt"]) assert.ok(zip.includes(name), name);
  assert.ok(!zip.includes("e.txt"), "only what was chosen");
  assert.equal(page.url().split("?")[0], place, "the page stays");
  assert.deepEqual(complaints.filter((line) => !/404/.test(line)), []);
  await context.close();
});

test("F2 renames, Delete moves to the trash and one button brings it back", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const { files } = await folder(page, "keys");
  await page.locator("td a.nm", { hasText: "a.txt" }).focus();
  await page.keyboard.press("F2");
  await page.locator("dialog.question[open] #to").waitFor();
  assert.equal(await page.inputValue("dialog #to"), "a.txt");
  assert.deepEqual(await violations(page, page.locator("dialog.question")), []);
  await page.fill("dialog #to", "z 100%.txt");
  await page.keyboard.press("Enter");
  await page.locator("td a.nm", { hasText: "z 100%.txt" }).waitFor();
  assert.equal(readFileSync(join(files, "z 100%.txt"), "utf8"), "a");
  await box(page, "b.txt").check();
  await box(page, "into").check();
  await page.locator("td a.nm", { hasText: "c.txt" }).focus();
  await page.keyboard.press("Delete");
  await page.locator("[role=status]", { hasText: "in the trash of the folder now: 2" }).first().waitFor();
  assert.ok(!existsSync(join(files, "b.txt")) && !existsSync(join(files, "into")));
  assert.ok(existsSync(join(files, "c.txt")), "the row in focus was not chosen");
  assert.deepEqual(await violations(page), []);
  await page.click("form[action$='/removed/undo'] button");
  await page.locator("[role=status]", { hasText: "back in its place" }).first().waitFor();
  assert.ok(existsSync(join(files, "b.txt")) && existsSync(join(files, "into")));
  // Without a choice it is the row in focus.
  await page.locator("td a.nm", { hasText: "c.txt" }).focus();
  await page.keyboard.press("Delete");
  await page.locator("[role=status]", { hasText: "c.txt is in the trash" }).first().waitFor();
  assert.ok(!existsSync(join(files, "c.txt")));
  // A reload says nothing of it again.
  await page.reload();
  assert.equal(await page.locator("form[action$='/removed/undo']").count(), 0);
  // Keys that are typed into a field are letters.
  await page.fill("#name", "x");
  await page.press("#name", "Delete");
  await page.keyboard.press("?");
  assert.ok(existsSync(join(files, "d.txt")));
  await page.locator("h1").click();
  await page.keyboard.press("?");
  for (const key of ["Space", "Ctrl A", "F2", "Delete"]) await page.locator("#sheet kbd", { hasText: key }).first().waitFor();
  assert.deepEqual(complaints.filter((line) => !/404/.test(line)), []);
  await context.close();
});

test("without script the same rows are chosen and moved by pages, also on a phone in Korean", async () => {
  const context = await browser.newContext({ storageState: state, javaScriptEnabled: false, locale: "ko-KR", viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  const { files } = await folder(page, "plain");
  await box(page, "a.txt").check();
  await box(page, "b.txt").check();
  assert.equal(await overflow(page), 0);
  await page.click("#marked button[value=move]");
  await page.locator("h1", { hasText: "이동할 항목 2개" }).waitFor();
  assert.equal(await overflow(page), 0);
  await page.fill("#to", "into");
  await page.click("form[action$='/selection'] button");
  await page.locator("[role=status]", { hasText: "항목 2개를 옮겼습니다" }).first().waitFor();
  assert.ok(existsSync(join(files, "into/a.txt")));
  await box(page, "c.txt").check();
  await box(page, "d.txt").check();
  await page.click("#marked button[value=remove]");
  await page.locator("h1", { hasText: "항목 2개를 삭제할까요?" }).waitFor();
  await page.click("form[action$='/selection'] button.pri");
  await page.click("form[action$='/removed/undo'] button");
  await page.locator("td a.nm", { hasText: "c.txt" }).waitFor();
  assert.ok(existsSync(join(files, "d.txt")));
  await context.close();
});

test("a folder goes to the trash with its files and comes back", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const { place, files } = await folder(page, "thrown");
  const id = new URL(place).pathname.split("/")[2];
  await page.goto(`${house.origin}/folders`);
  await page.click(`a[href='/folders/${id}/trash']`);
  await page.locator("dialog.question[open]").waitFor();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "Folder thrown is in the trash" }).first().waitFor();
  assert.equal(await page.locator(`a.nm[href='/folders/${id}/files']`).count(), 0);
  assert.deepEqual(await violations(page), []);
  await page.click(`form[action='/folders/${id}/restore'] button`);
  await page.locator("[role=status]", { hasText: "Folder thrown was restored" }).first().waitFor();
  await page.click(`a.nm[href='/folders/${id}/files']`);
  await page.locator("td a.nm", { hasText: "f.txt" }).waitFor();
  await until(() => "the file", async () => existsSync(join(files, "f.txt")));
  assert.deepEqual(complaints, []);
  await context.close();
});

test("a folder in the trash is deleted for good once that is asked for and answered", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const { place, files } = await folder(page, "unwanted");
  const id = new URL(place).pathname.split("/")[2];
  await page.goto(`${house.origin}/folders`);
  await page.click(`a[href='/folders/${id}/trash']`);
  await page.locator("dialog.question[open]").waitFor();
  await page.click("dialog form button");
  await page.click(`a[href='/folders/${id}/purge']`);
  await page.locator("dialog.question[open]", { hasText: "Delete unwanted for good?" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.ok(existsSync(join(files, "f.txt")), "a question removes nothing");
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "Folder unwanted is being deleted" }).first().waitFor();
  await until(() => "the files are gone", async () => !existsSync(files));
  await page.goto(`${house.origin}/folders`);
  assert.equal(await page.locator("td", { hasText: "unwanted" }).count(), 0);
  assert.deepEqual(complaints, []);
  await context.close();
});
