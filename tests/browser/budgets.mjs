// Budgets are given, changed and removed in the page, a hard one refuses a launch in the form, and users see their own.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp } from "./lib/house.mjs";

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

test("a budget is given, changed and removed in the page", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/`);
  await page.locator("a.it[href='/budgets']").first().waitFor();
  await page.goto(`${house.origin}/budgets`);
  await page.locator("#list", { hasText: "There are no budgets" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#subject", "default");
  await page.fill("#gpu_hours", "many");
  await page.fill("#month", "2999-01");
  await page.click("button:has-text('Add budget')");
  await page.locator("#gpu_hours[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#month"), "2999-01");
  await page.fill("#gpu_hours", "40.5");
  await page.fill("#subject", "nowhere");
  await page.click("button:has-text('Add budget')");
  await page.locator("#subject[aria-invalid=true]").waitFor();
  await page.fill("#subject", "default");
  await page.check("#hard");
  await page.click("button:has-text('Add budget')");
  await page.locator("[role=status]", { hasText: "was added" }).first().waitFor();
  const row = page.locator("#list tr", { hasText: "default/default" });
  const told = await row.innerText();
  assert.match(told, /0\.00 of 40\.50/);
  assert.match(told, /hard/);
  assert.match(told, /planned/);
  assert.equal(await overflow(page), 0);
  await row.locator("a", { hasText: "default/default" }).click();
  await page.locator("h1", { hasText: "default/default" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#gpu_hours", "50");
  await page.uncheck("#hard");
  await page.click("button:has-text('Save')");
  await page.locator("[role=status]", { hasText: "was changed" }).first().waitFor();
  assert.match(await row.innerText(), /0\.00 of 50\.00/);
  assert.match(await row.innerText(), /soft/);
  await page.goto(`${house.origin}/events`);
  await page.locator("#list", { hasText: "Added a budget" }).waitFor();
  await page.goto(`${house.origin}/budgets`);
  await row.locator("a[href$='/remove']").click();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "was removed" }).first().waitFor();
  await page.locator("#list", { hasText: "There are no budgets" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("many budgets fill pages and are filtered, on a phone and in Korean", async () => {
  house.command("project", "create", "vision");
  const year = (at) => `${2100 + at}-01`;
  for (let at = 0; at < 60; at += 1) {
    for (const project of ["default", "vision"]) {
      const body = { project, gpu_hours: "10", month: year(at), hard: at % 2 === 0 };
      house.command("api", "POST", "/budgets", JSON.stringify(body));
    }
  }
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/budgets`);
  assert.equal(await page.locator("#list tbody tr").count(), 30);
  await page.goto(`${house.origin}/budgets?page=4`);
  assert.equal(await page.locator("#list tbody tr").count(), 30);
  await page.goto(`${house.origin}/budgets?q=vision+kind%3Ahard`);
  assert.equal(await page.locator("#list tbody tr").count(), 30);
  await page.goto(`${house.origin}/budgets?q=state%3Acurrent`);
  await page.locator("#list", { hasText: "No budget matches" }).waitFor();
  await context.close();
  const phone = { viewport: { width: 390, height: 844 }, locale: "ko-KR", colorScheme: "dark" };
  const small = await browser.newContext({ storageState: state, ...phone });
  const narrow = await small.newPage();
  const { items } = JSON.parse(house.command("budget", "ls", "-o", "json"));
  for (const path of ["/budgets", `/budgets/${items[0].id}`]) {
    await narrow.goto(house.origin + path);
    await narrow.locator("h1").waitFor();
    assert.equal(await overflow(narrow), 0, path);
    assert.deepEqual(await violations(narrow), [], path);
  }
  await small.close();
});
