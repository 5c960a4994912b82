// An administrator tries a rule for idle sessions, adds it, changes it and removes it.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open();
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("an idle rule is tried, added, changed and removed", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/policies`);
  await page.click("a[href='/idle-rules']");
  await page.locator(".empty", { hasText: "No idle rules" }).waitFor();
  assert.deepEqual(await violations(page), []);

  // A dry run saves nothing and keeps what was typed.
  await page.fill("#window", "3h");
  await page.click("button:has-text('Try on the last week')");
  await page.locator("#tried", { hasText: "no session" }).waitFor();
  assert.equal(await page.inputValue("#window"), "3h");
  await page.locator(".empty", { hasText: "No idle rules" }).waitFor();
  assert.deepEqual(await violations(page), []);
  // Its answer has no address of its own.
  await page.goto(`${house.origin}/idle-rules/try`);
  assert.equal(page.url(), `${house.origin}/idle-rules`);

  // What was refused stands at its field.
  await page.fill("#name", "idle-gpus");
  await page.fill("#window", "5m");
  await page.fill("#keys", "many");
  await page.click("button:has-text('Add rule')");
  await page.locator("#window[aria-invalid=true]").waitFor();
  assert.equal(await page.locator("main [aria-invalid=true]").count(), 2, "both faults at once");
  assert.equal(await page.inputValue("#name"), "idle-gpus");
  assert.deepEqual(await violations(page), []);
  await page.fill("#window", "2h");
  await page.fill("#keys", "");
  await page.click("button:has-text('Add rule')");
  await page.locator("main [role=status]", { hasText: "idle-gpus was added" }).waitFor();
  await page.locator("tbody tr", { hasText: "GPU below 5% and cores below 0.1" }).waitFor();
  assert.deepEqual(await violations(page), []);

  await page.click("tbody >> text=idle-gpus");
  assert.equal(await page.inputValue("#window"), "2h");
  await page.click("button:has-text('Try on the last week')");
  await page.locator("#tried").waitFor();
  await page.selectOption("#of", "any");
  await page.selectOption("#action", "requeue");
  await page.click("button:has-text('Save')");
  await page.locator("tbody tr", { hasText: "GPU below 5% or cores below 0.1" }).waitFor();

  await page.locator("tbody tr", { hasText: "Stop it and queue it again" }).waitFor();

  await page.click("tbody tr:has-text('idle-gpus') a[data-dialog]");
  await page.click("dialog button:has-text('Remove rule')");
  await page.locator(".empty", { hasText: "No idle rules" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("the pages of idle rules stand on a phone, in Korean and in the dark", async () => {
  const context = await browser.newContext({
    storageState: state,
    locale: "ko-KR",
    colorScheme: "dark",
    viewport: { width: 360, height: 740 },
  });
  const page = await context.newPage();
  await page.goto(`${house.origin}/idle-rules`);
  await page.fill("#name", "idle-gpus");
  await page.click("main form button.pri");
  await page.locator("tbody tr", { hasText: "idle-gpus" }).waitFor();
  for (const path of ["/idle-rules", "/idle-rules/idle-gpus"]) {
    await page.goto(`${house.origin}${path}`);
    assert.deepEqual(await violations(page), [], path);
    assert.equal(await overflow(page), 0, path);
  }
  await context.close();
});
