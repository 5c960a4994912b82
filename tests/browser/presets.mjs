// Presets are made in the page, stand on the launch form and fill its fields, with script and without; more than eight of
// them are a list.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
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
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a preset is made, changed and removed in the page", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/presets`);
  await page.locator("#list", { hasText: "There are no presets" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", "tiny");
  await page.click("button:has-text('Create preset')");
  await page.locator("#cpu[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "tiny");
  await page.fill("#cpu", "0.1");
  await page.fill("#memory", "lots");
  await page.click("button:has-text('Create preset')");
  await page.locator("#memory[aria-invalid=true]").waitFor();
  await page.locator("form .fault", { hasText: "a number of GiB" }).waitFor();
  assert.equal(await page.inputValue("#cpu"), "0.1");
  await page.fill("#memory", "0.0625");
  await page.fill("#title", "Tiny one");
  await page.click("button:has-text('Create preset')");
  await page.locator("[role=status]", { hasText: "tiny was created" }).first().waitFor();
  const row = page.locator("#list tr", { hasText: "Tiny one" });
  assert.match(await row.innerText(), /0\.1 CPU · 64 MiB/);
  assert.equal(await overflow(page), 0);
  await row.locator("a", { hasText: "Tiny one" }).click();
  await page.locator("h1", { hasText: "tiny" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#max_runtime_seconds", "10m");
  await page.check("#default");
  await page.click("button:has-text('Save')");
  await page.locator("[role=status]", { hasText: "tiny was changed" }).first().waitFor();
  assert.match(await row.innerText(), /default/);
  await page.goto(`${house.origin}/events`);
  await page.locator("#list", { hasText: "Added a preset" }).waitFor();
  house.command("preset", "add", "passing", "--cpu", "1");
  await page.goto(`${house.origin}/presets`);
  await page.locator("#list tr", { hasText: "passing" }).locator("a[href$='/remove']").click();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "was removed" }).first().waitFor();
  assert.equal(await page.locator("#list tr", { hasText: "passing" }).count(), 0);
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("a preset fills the form, and what is launched with it says so", async () => {
  house.command("preset", "add", "cards", "--cpu", "1", "--mem", "1g", "--gpu", "2");
  house.command("preset", "add", "other", "--cpu", "0.2", "--mem", "128m", "--shm", "32m");
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/sessions/new`);
  // The default fills a new form.
  assert.equal(await page.inputValue("#cpu"), "0.1");
  assert.equal(await page.inputValue("#max_runtime"), "10m");
  const chip = (name) => page.locator("#sizes .chip", { hasText: name });
  assert.equal(await chip("Tiny one").getAttribute("aria-pressed"), "true");
  assert.match(await chip("Tiny one").innerText(), /0\.1 CPU · 64 MiB · 10 min/);
  assert.deepEqual(await violations(page), []);
  await chip("other").click();
  assert.equal(await page.inputValue("#cpu"), "0.2");
  assert.equal(await page.inputValue("#shm"), "32m");
  assert.equal(await page.inputValue("#max_runtime"), "");
  assert.equal(await chip("other").getAttribute("aria-pressed"), "true");
  await page.locator("#cli-line", { hasText: "--cpu 0.2" }).waitFor();
  await page.fill("#cpu", "0.3");
  assert.equal(await chip("other").getAttribute("aria-pressed"), "false");
  // A link opens the form with a preset.
  await page.goto(`${house.origin}/sessions/new?preset=other`);
  assert.equal(await page.inputValue("#cpu"), "0.2");
  assert.equal(await page.locator("#changed").count(), 0);
  assert.equal(await page.locator("#sizes .chip.on").count(), 1);
  await page.goto(`${house.origin}/sessions/new?preset=nope`);
  await page.locator("#changed", { hasText: "There is no preset nope" }).waitFor();
  assert.equal(await page.inputValue("#cpu"), "0.1");
  // This machine has no GPU: the form shows no field of one, and still launches nothing without what was picked.
  await chip("cards").click();
  await until(() => "the preview says so", async () => /GPU/.test(await page.locator("#preview .verdict").innerText()));
  await page.goto(`${house.origin}/sessions/new?preset=other`);
  await page.fill("#name", "labelled");
  await page.click("#preview button[value=launch]");
  await page.waitForURL(/sessions\/0/);
  assert.equal(JSON.parse(house.command("session", "get", "labelled", "-o", "json")).labels.preset, "other");
  assert.deepEqual(complaints, []);
  await context.close();
  const plain = await browser.newContext({ storageState: state, locale: "en-US", javaScriptEnabled: false });
  const still = await plain.newPage();
  await still.goto(`${house.origin}/sessions/new`);
  await still.click("#sizes .chip:has-text('other')");
  assert.equal(await still.inputValue("#cpu"), "0.2");
  assert.equal(await still.inputValue("#shm"), "32m");
  await plain.close();
});

test("many presets are a list, on a phone, in Korean and in the dark too", async () => {
  for (let n = 1; n <= 50; n += 1) {
    house.command("preset", "add", `size-${n}`, "--cpu", String(n / 100), "--mem", "64m", "--title", `Size number ${n}`);
  }
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  assert.equal(await page.locator("#sizes .chip").count(), 0);
  await page.selectOption("#size", "size-20");
  assert.equal(await page.inputValue("#cpu"), "0.2");
  assert.equal(await page.inputValue("#size"), "size-20");
  await page.fill("#cpu", "0.77");
  assert.equal(await page.inputValue("#size"), "");
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await context.close();
  const plain = await browser.newContext({ storageState: state, locale: "en-US", javaScriptEnabled: false });
  const still = await plain.newPage();
  await still.goto(`${house.origin}/sessions/new`);
  await still.selectOption("#size", "size-30");
  await still.click("button[value=size]");
  assert.equal(await still.inputValue("#cpu"), "0.3");
  assert.equal(await still.inputValue("#size"), "size-30");
  // Picked and not filled in: the form comes back with its amounts, and nothing is launched yet.
  await still.selectOption("#size", "size-40");
  await still.fill("#name", "listed");
  await still.click("button[value=launch]");
  assert.equal(await still.inputValue("#cpu"), "0.4");
  await still.click("button[value=launch]");
  await still.waitForURL(/sessions\/0/);
  assert.equal(JSON.parse(house.command("session", "get", "listed", "-o", "json")).labels.preset, "size-40");
  await plain.close();
  const phone = { viewport: { width: 390, height: 844 }, locale: "ko-KR", colorScheme: "dark" };
  const small = await browser.newContext({ storageState: state, ...phone });
  const narrow = await small.newPage();
  for (const path of ["/presets", "/sessions/new", "/presets/tiny"]) {
    await narrow.goto(house.origin + path);
    await narrow.locator("h1").waitFor();
    assert.equal(await overflow(narrow), 0, path);
    assert.deepEqual(await violations(narrow), [], path);
  }
  await small.close();
});
