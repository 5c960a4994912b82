// Files of a folder with the pages alone: a directory is made, files are sent in pieces that go on after a loss and a reload,
// dropped, looked at, renamed and deleted; and the same by forms where there is no script.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { addFolder, openWith, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;
let place;
let mounted;
const files = mkdtempSync(join(tmpdir(), "fardel-folder-"));
const large = join(files, "large.bin");

before(async () => {
  writeFileSync(large, Buffer.alloc(40 << 20, "0123456789abcdef"));
  writeFileSync(join(files, "table.csv"), "epoch,loss\n1,0.5\n2,0.25\n");
  writeFileSync(join(files, "page.html"), "<script>document.title = 'stolen'</script>");
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  ({ place, mounted } = await addFolder(page, house, "data"));
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(files, { recursive: true, force: true });
});

test("an upload goes on after a lost connection and a reload, and its bytes come back", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const offsets = [];
  let lost = 0;
  await page.route("**/api/v1/folders/*/uploads/*", async (route) => {
    const request = route.request();
    if (request.method() !== "PATCH") return route.continue();
    offsets.push(Number(request.headers()["upload-offset"]));
    // The second piece is lost once; it, and all after it, until the page is loaded again.
    if (offsets.length >= 2 && lost < 2) {
      lost += 1;
      return route.abort("connectionreset");
    }
    return route.continue();
  });
  const choose = async () => {
    await page.goto(place);
    await page.setInputFiles("#files", large);
    await page.click("#upload button");
  };
  await choose();
  await until(() => `a second loss after ${offsets}`, async () => lost === 2);
  page.once("dialog", (dialog) => dialog.accept());
  await choose();
  await page.locator("td a.nm", { hasText: "large.bin" }).waitFor({ timeout: 20_000 });
  assert.ok(offsets.slice(2).every((offset) => offset >= 16 << 20), `${offsets}`);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.locator("tr", { hasText: "large.bin" }).locator("a[download]").click(),
  ]);
  assert.equal(download.suggestedFilename(), "large.bin");
  assert.ok(readFileSync(await download.path()).equals(readFileSync(large)));
  // The same name again is refused in words, and taken where it is meant.
  await page.setInputFiles("#files", large);
  await page.click("#upload button");
  await page.locator("#upload .fault", { hasText: "large.bin" }).waitFor();
  await page.check("[name=overwrite]");
  await page.setInputFiles("#files", large);
  await page.click("#upload button");
  await page.locator("[role=status]", { hasText: "Files uploaded: 1" }).first().waitFor({ timeout: 20_000 });
  await context.close();
});

test("a folder leads to the launch form with it in, where a click adds another", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(place);
  await page.click(".head a:has-text('Launch session')");
  await page.locator("#mounts").waitFor();
  assert.equal(await page.inputValue("#mounts"), "data");
  await page.click("[data-mount=home]");
  // Once more adds nothing.
  await page.click("[data-mount=data]");
  assert.equal(await page.inputValue("#mounts"), "data\nhome");
  await page.locator("#cli-line", { hasText: "--mount data --mount home" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("directories are made, files dropped, looked at, renamed and deleted", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(place);
  await page.fill("#name", "a/b");
  await page.click("form[action$='/mkdir'] button");
  await page.locator("#name[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "a/b");
  await page.fill("#name", "train 100%");
  await page.click("form[action$='/mkdir'] button");
  await page.locator("td a.nm", { hasText: "train 100%" }).click();
  await page.locator(".none", { hasText: "Nothing is in this directory" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.evaluate((text) => {
    const data = new DataTransfer();
    data.items.add(new File([text], "table.csv"));
    document.querySelector("main").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, readFileSync(join(files, "table.csv"), "utf8"));
  await page.locator("td a.nm", { hasText: "table.csv" }).click();
  await page.locator("table.cells td", { hasText: "0.25" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#to", "train 100%25/renamed.csv");
  await page.click("form[action$='/entry'] button:not([formaction])");
  await page.locator("td a.nm", { hasText: "renamed.csv" }).waitFor();
  await page.locator("tr", { hasText: "renamed.csv" }).locator("a[href*='/remove']").click();
  await page.locator("dialog.question[open]").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "is in the trash" }).first().waitFor();
  await page.locator(".none", { hasText: "Nothing is in this directory" }).waitFor();
  await page.locator(".card > header a[href$='/removed']").click();
  assert.deepEqual(await violations(page), []);
  await page.locator("tr", { hasText: "renamed.csv" }).locator("button").click();
  await page.locator("[role=status]", { hasText: "back in its place" }).first().waitFor();
  await page.goto(`${place}?path=${encodeURIComponent("train 100%25")}`);
  await page.locator("td a.nm", { hasText: "renamed.csv" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("a text is made, edited and kept from a version that came between, and found below", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(place);
  await page.click("a[href*='/edit?new=1']");
  await page.click("form[action$='/edit'] button");
  await page.locator("#name[aria-invalid=true]").waitFor();
  await page.fill("#name", "notes.md");
  await page.fill("#text", "\n# Title\n<b>bold</b>\n");
  assert.deepEqual(await violations(page), []);
  await page.click("form[action$='/edit'] button");
  await page.locator("[role=status]", { hasText: "notes.md was saved" }).first().waitFor();
  assert.equal(readFileSync(join(mounted, "notes.md"), "utf8"), "\n# Title\n<b>bold</b>\n");
  assert.match(await page.locator("pre.numbered .no").innerText(), /1\s+2\s+3/);
  assert.deepEqual(await violations(page), []);
  await page.locator(".act a[href*='/edit']").click();
  assert.equal(await page.inputValue("#text"), "\n# Title\n<b>bold</b>\n");
  writeFileSync(join(mounted, "notes.md"), "\n# Of a session\n<b>bold</b>\n");
  await page.fill("#text", "\n# Mine\n<b>bold</b>\n");
  await page.click("form[action$='/edit'] button");
  await page.locator("[role=alert] pre", { hasText: "# Of a session" }).waitFor();
  await page.locator("[role=alert] pre", { hasText: "# Mine" }).waitFor();
  assert.equal(await page.inputValue("#text"), "\n# Mine\n<b>bold</b>\n", "what was typed stays");
  assert.deepEqual(await violations(page), []);
  assert.equal(readFileSync(join(mounted, "notes.md"), "utf8"), "\n# Of a session\n<b>bold</b>\n");
  await page.click("form[action$='/edit'] button");
  await page.locator("[role=status]", { hasText: "was saved" }).first().waitFor();
  assert.equal(readFileSync(join(mounted, "notes.md"), "utf8"), "\n# Mine\n<b>bold</b>\n");
  // What was typed outlives the file, for another name.
  await page.locator(".act a[href*='/edit']").click();
  rmSync(join(mounted, "notes.md"));
  await page.fill("#text", "# Kept\n");
  await page.click("form[action$='/edit'] button");
  await page.locator("#name[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "notes.md");
  assert.equal(await page.inputValue("#text"), "# Kept\n");
  await page.fill("#text", "\n# Mine\n<b>bold</b>\n");
  await page.click("form[action$='/edit'] button");
  await page.locator("[role=status]", { hasText: "was saved" }).first().waitFor();
  // A copy, found below the top by keys alone.
  await page.fill("#to", "train 100%25/copied.md");
  await page.click("form[action$='/entry'] button[formaction$='/copy']");
  await page.locator("[role=status]", { hasText: "was copied" }).first().waitFor();
  await page.goto(place);
  await page.keyboard.press("/");
  await page.keyboard.type("copied");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator("td a.nm", { hasText: "copied.md" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1);
  assert.deepEqual(await violations(page), []);
  await page.locator("h1").click();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.locator("pre", { hasText: "# Mine" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/404|412|422/.test(line)), []);
  await context.close();
});

test("a notebook is shown and nothing of it runs, a directory is sorted and counted, without script", async () => {
  const context = await browser.newContext({ storageState: state, javaScriptEnabled: false, locale: "en-US" });
  const page = await context.newPage();
  const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const outputs = [
    { output_type: "display_data", data: { "text/html": "<script>document.title = 'stolen'</script>" } },
    { output_type: "display_data", data: { "image/svg+xml": "<svg onload=\"document.title='stolen'\"/>" } },
    { output_type: "display_data", data: { "image/png": dot } },
    { output_type: "stream", text: ["epoch 1\n"] },
  ];
  const cells = [
    { cell_type: "markdown", source: ["# <img src=x onerror=alert(1)>"] },
    { cell_type: "code", source: ["print('epoch 1')"], outputs },
  ];
  writeFileSync(join(mounted, "a.ipynb"), JSON.stringify({ nbformat: 4, nbformat_minor: 5, metadata: {}, cells }));
  writeFileSync(join(mounted, "drawn.png"), "<svg onload=\"document.title='stolen'\"/>");
  await page.goto(`${place.replace("/files", "/entry")}?path=a.ipynb`);
  await page.locator(".notebook pre", { hasText: "print('epoch 1')" }).waitFor();
  assert.equal(await page.locator(".notebook img").count(), 1);
  assert.equal(await page.locator(".notebook svg, .notebook script").count(), 0);
  assert.equal(await page.locator(".notebook p.m").count(), 2);
  await page.goto(`${place.replace("/files", "/entry")}?path=drawn.png`);
  await page.locator("pre", { hasText: "<svg" }).waitFor();
  assert.equal(await page.locator("img.shown").count(), 0);
  assert.equal((await page.title()).includes("stolen"), false);
  await page.goto(place);
  await page.locator("th a", { hasText: "Size" }).click();
  assert.equal(await page.locator("th[aria-sort=descending]").textContent(), "Size");
  const names = await page.locator("td a.nm").allInnerTexts();
  assert.ok(names.indexOf("large.bin") < names.indexOf("a.ipynb"), `${names}`);
  await page.locator(".card > header a[href*='/usage']").click();
  await page.locator("td a.nm", { hasText: "train 100%" }).waitFor();
  await page.locator(".head a[href*='fresh=true']").click();
  await page.locator("p.none", { hasText: "Counted" }).waitFor();
  await context.close();
});

test("without script a form sends files, and a page of a user's is no page of the console", async () => {
  const context = await browser.newContext({ storageState: state, javaScriptEnabled: false, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(place);
  await page.setInputFiles("#files", [join(files, "table.csv"), join(files, "page.html")]);
  await page.click("#upload button");
  await page.locator("td a.nm", { hasText: "page.html" }).click();
  await page.locator("pre", { hasText: "<script>" }).waitFor();
  assert.equal(await page.title().then((title) => title.includes("stolen")), false);
  await page.goto(place);
  await page.setInputFiles("#files", join(files, "table.csv"));
  await page.click("#upload button");
  await page.locator("#fault-files", { hasText: "table.csv" }).waitFor();
  await context.close();
});

test("a directory of a thousand files comes in pages, in both languages and on a phone", async () => {
  for (let number = 0; number < 1000; number += 1) writeFileSync(join(mounted, `n${String(number).padStart(4, "0")}`), "x");
  for (const [locale, viewport] of [
    ["en-US", { width: 1280, height: 900 }],
    ["ko-KR", { width: 390, height: 844 }],
  ]) {
    const context = await browser.newContext({ storageState: state, locale, viewport });
    const page = await context.newPage();
    await page.goto(`${place}?q=n0`);
    assert.equal(await page.locator("tbody tr").count(), 60);
    assert.deepEqual(await violations(page), []);
    assert.equal(await overflow(page), 0);
    await page.click("a[rel=next]");
    await page.locator("td a.nm", { hasText: "n0060" }).waitFor();
    assert.equal(await page.locator("td a.nm", { hasText: "n0059" }).count(), 0);
    await context.close();
  }
});

test("search, use by directory and editor fit a phone, in both languages", async () => {
  writeFileSync(join(mounted, "wide.py"), `${"x = 1  # a line without an end ".repeat(40)}\n`.repeat(50));
  writeFileSync(join(mounted, `${"n".repeat(251)}.txt`), "x");
  for (const [locale, viewport] of [
    ["ko-KR", { width: 390, height: 844 }],
    ["en-US", { width: 1280, height: 900 }],
  ]) {
    const context = await browser.newContext({ storageState: state, locale, viewport });
    const page = await context.newPage();
    for (const path of ["search?q=n", "usage", "edit?path=wide.py", "edit?new=1", "entry?path=wide.py", "files?sort=-modified_at"]) {
      await page.goto(place.replace("/files", `/${path}`));
      await page.locator("h1").waitFor();
      assert.deepEqual(await violations(page), [], path);
      assert.equal(await overflow(page), 0, path);
    }
    await context.close();
  }
});
