// An administrator makes a resource group, gives it the node, says who may use it and takes it away again. A launch form
// asks for a group only while there are several.

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

test("a resource group is made, changed and removed in the page", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/sessions/new`);
  assert.equal(await page.locator("#group").count(), 0, "there is nothing to choose");
  await page.goto(`${house.origin}/groups`);
  await page.locator("#list tr", { hasText: "default" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", "No Name");
  await page.click("button:has-text('Create resource group')");
  await page.locator("#name[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "No Name");
  await page.fill("#name", "lab");
  await page.click("button:has-text('Create resource group')");
  await page.locator("[role=status]", { hasText: "lab was created" }).first().waitFor();
  await page.locator("h1", { hasText: "lab" }).waitFor();
  assert.deepEqual(await violations(page), []);

  // What was refused stands at its field, and keeps what was typed.
  await page.fill("#nodes", "nowhere");
  await page.click("button:has-text('Save nodes')");
  await page.locator("#nodes[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#nodes"), "nowhere");
  await page.fill("#users", "stranger");
  await page.uncheck("#everybody");
  await page.click("button:has-text('Save access')");
  await page.locator("#users[aria-invalid=true]").waitFor();
  assert.equal(await page.isChecked("#everybody"), false);
  const node = JSON.parse(house.command("node", "ls", "-o", "json")).items[0].name;
  await page.fill("#nodes", node);
  await page.click("button:has-text('Save nodes')");
  await page.locator("[role=status]", { hasText: "lab was changed" }).first().waitFor();

  // Windows are lines; a factor and an order of its own are fields.
  await page.fill("#windows", "someday 18:00-08:00");
  await page.click("button:has-text('Save windows')");
  await page.locator("#windows[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#windows"), "someday 18:00-08:00");
  await page.fill("#windows", "mon-fri 18:00-08:00 kinds=batch");
  await page.fill("#time_zone", "Asia/Seoul");
  await page.click("button:has-text('Save windows')");
  await page.locator("[role=status]", { hasText: "lab was changed" }).first().waitFor();
  await page.selectOption("#order", "fifo");
  await page.fill("#cpu_overcommit", "9");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.locator("#cpu_overcommit[aria-invalid=true]").waitFor();
  await page.fill("#cpu_overcommit", "1.5");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.locator("[role=status]", { hasText: "lab was changed" }).first().waitFor();
  const rules = JSON.parse(house.command("group", "get", "lab", "-o", "json"));
  assert.deepEqual([rules.order, rules.cpu_overcommit, rules.time_zone, rules.windows.length], ["fifo", 1.5, "Asia/Seoul", 1]);
  await page.goto(`${house.origin}/groups`);
  const row = page.locator("#list tr", { hasText: "lab" }).filter({ hasText: node });
  await row.waitFor();
  for (const said of ["First in, first out", "1 window", "Asia/Seoul", "Off"]) assert.match(await row.innerText(), new RegExp(said), said);
  assert.equal(await overflow(page), 0);
  await page.goto(`${house.origin}/nodes`);
  await page.locator(".head", { hasText: "Resource group lab" }).waitFor();

  await page.goto(`${house.origin}/sessions/new`);
  assert.equal(await page.locator("#group").count(), 1, "there are two");
  house.command("group", "nodes", "default", node);
  house.command("group", "rm", "lab");
  await page.goto(`${house.origin}/sessions/new`);
  assert.equal(await page.locator("#group").count(), 0);
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("the pages of resource groups stand on a phone, in Korean and in the dark", async () => {
  const context = await browser.newContext({
    storageState: state,
    locale: "ko-KR",
    colorScheme: "dark",
    viewport: { width: 360, height: 740 },
  });
  const page = await context.newPage();
  house.command("group", "add", "lab", "--title", "Lab");
  for (const path of ["/groups", "/groups/lab", "/groups/default", "/sessions/new"]) {
    await page.goto(`${house.origin}${path}`);
    assert.deepEqual(await violations(page), [], path);
    assert.equal(await overflow(page), 0, path);
  }
  await context.close();
});
