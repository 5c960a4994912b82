// A course is made, opened and ended in the page: a draft, a board with a cell for each student, acts on all and on those that
// are marked, with a question before sessions start, and a link that opens the launch form filled.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let folder;
let state;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-courses-"));
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  house.command("project", "create", "vision");
  for (const name of ["jae", "kim"]) {
    house.command("user", "add", name, "--password-file", password);
    house.command("project", "add", "vision", name);
  }
  house.command("preset", "add", "tiny", "--cpu", "0.1", "--mem", "64m", "--project", "vision");
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

/// So many days from now, as a field of a local time takes it.
const inDays = (days) => new Date(Date.now() + days * 864e5).toISOString().slice(0, 16);

test("a course is made, opened, started and ended in the page", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/courses`);
  await page.locator("#list", { hasText: "There are no courses" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", "A course");
  await page.fill("#from", inDays(-1));
  await page.fill("#to", inDays(3_000));
  await page.click("button:has-text('Make course')");
  await page.locator("#name[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "A course", "what was typed is kept");
  await page.fill("#name", "deep");
  if (await page.locator("#project").count()) await page.locator("#project").selectOption("default/vision");
  await page.click("button:has-text('Make course')");
  await page.locator("#to[aria-invalid=true]").waitFor();
  await page.fill("#to", inDays(90));
  await page.fill("#preset", "tiny");
  await page.fill("#max_runtime_seconds", "2h");
  await page.fill("#rules", "Save your work in time.");
  await page.click("button:has-text('Make course')");
  await page.locator("[role=status]", { hasText: "deep was made" }).first().waitFor();
  await page.locator("h1 .pill", { hasText: "draft" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("button:has-text('Open course')");
  await page.locator("h1 .pill", { hasText: "running" }).waitFor();
  assert.equal(await page.locator(".class > li").count(), 2, "the teacher is no student");

  await page.click("button:has-text('Start sessions')");
  await page.locator("h1", { hasText: "Start 2 sessions?" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("main form button.pri");
  await page.locator("[role=status]", { hasText: "2 sessions were started" }).first().waitFor();
  await until(() => "both run", async () => {
    await page.reload();
    return (await page.locator(".class .pill.ok").count()) === 2;
  });
  await page.fill("#minutes", "soon");
  await page.click("button:has-text('Run longer')");
  await page.locator("#minutes[aria-invalid=true]").waitFor();
  await page.fill("#minutes", "30");
  await page.check("input[name=member][value=jae]");
  await page.click("button:has-text('Run longer')");
  await page.locator("[role=status]", { hasText: "1 session runs longer" }).first().waitFor();
  await page.fill("#text", "Ten minutes left.");
  await page.click("button:has-text('Send')");
  await page.locator("[role=status]", { hasText: "2 students" }).first().waitFor();
  assert.equal(await overflow(page), 0);
  const answer = await page.request.get(`${page.url().split("?")[0]}/attendance.csv`);
  assert.match(await answer.text(), /^user,sessions,first,last,seconds\r\njae,1,/);

  await page.click("a:has-text('End course')");
  await page.click("dialog form button");
  await page.locator("h1 .pill", { hasText: "ended" }).waitFor();
  await until(() => "both ended", async () => {
    await page.reload();
    return (await page.locator(".class .pill", { hasText: "ended" }).count()) === 2;
  });
  await page.goto(`${house.origin}/events`);
  await page.locator("#list", { hasText: "Ended a course" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/422/.test(line)), []);
  await context.close();
});

test("the link of a course opens the launch form filled, on a phone and in Korean too", async () => {
  house.command("course", "open", "deep", "--to", inDays(91));
  const phone = { width: 390, height: 844 };
  const context = await browser.newContext({ storageState: state, locale: "ko-KR", viewport: phone });
  const page = await context.newPage();
  await page.goto(`${house.origin}/courses`);
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  await page.locator("#list tr", { hasText: "deep" }).locator("a", { hasText: "deep" }).click();
  await page.locator(".class").waitFor();
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  await page.locator("a[href^='/sessions/new?']").first().click();
  await page.locator("#launch").waitFor();
  assert.match(page.url(), /project=default%2Fvision.*preset=tiny.*max_runtime=2h/);
  await context.close();
});
