// Administrators under each other's eyes: one opens a session of another user only with a reason, which its owner reads, and
// where the site says so an act of one waits until the second one approves it.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp, signedInAs } from "./lib/house.mjs";

const WHY = "The job fills the disk of its node.";

let browser;
let house;
let folder;
let state;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-oversight-"));
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  for (const name of ["grace", "kim"]) house.command("user", "add", name, "--password-file", password);
  house.command("user", "role", "grace", "administrator");
  const later = new Date(Date.now() + 864e5).toISOString();
  house.command("run", "-d", "--owner", "kim", "--cpu", "0.1", "--mem", "64m", "--start-at", later, "--name", "kims", "host", "--", "true");
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const as = (name) => signedInAs(browser, house, { name, password: PERSON.password });

test("a session of another user is opened with a reason, and its owner reads it", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/break-glass?kind=session&of=kims`);
  assert.equal(await page.inputValue("#of"), "kims");
  assert.deepEqual(await violations(page), []);
  await page.fill("#reason", "why not");
  await page.click("form[action='/break-glass'] .pri");
  await page.locator("#reason[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#of"), "kims");
  await page.fill("#reason", WHY);
  await page.click("form[action='/break-glass'] .pri");
  await page.locator("[role=status]", { hasText: "kims is open to you" }).first().waitFor();
  await page.goto(`${house.origin}/break-glass`);
  await page.locator("li", { hasText: WHY }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await overflow(page), 0);

  const kim = await as("kim");
  await kim.goto(`${house.origin}/notices`);
  await kim.locator("li", { hasText: `${PERSON.name} looks into it` }).filter({ hasText: WHY }).waitFor();
  await kim.goto(`${house.origin}/break-glass`);
  await kim.locator("li", { hasText: WHY }).waitFor();
  assert.equal(await kim.locator("form[action='/break-glass']").count(), 0);
  await kim.context().close();

  await page.click("form[action$='/end'] button");
  await page.locator("[role=status]", { hasText: "closed to you again" }).first().waitFor();
  assert.equal(await page.locator("form[action$='/end']").count(), 0);
  assert.deepEqual(complaints.filter((line) => !/422/.test(line)), []);
  await context.close();
});

test("a user asks for a higher limit, and an administrator answers by raising it", async () => {
  const why = "The exam week.";
  const kim = await as("kim");
  await kim.goto(`${house.origin}/me`);
  await kim.click("a[href='/me/limits']");
  assert.deepEqual(await violations(kim), []);
  await kim.selectOption("#key", "waiting");
  await kim.fill("#value", "1");
  await kim.fill("#days", "7");
  await kim.fill("#reason", why);
  await kim.click("form[action='/me/limits'] .pri");
  await kim.locator("#value[aria-invalid=true]").waitFor();
  assert.equal(await kim.inputValue("#reason"), why, "what was typed stays");
  await kim.fill("#value", "2000");
  await kim.click("form[action='/me/limits'] .pri");
  await kim.locator("[role=status]", { hasText: "Administrators see what you ask for" }).first().waitFor();
  assert.deepEqual(await violations(kim), []);

  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/notices`);
  await page.locator("li", { hasText: "Requests for higher limits" }).waitFor();
  await page.goto(`${house.origin}/allowances`);
  assert.deepEqual(await violations(page), []);
  await page.locator("li", { hasText: why }).locator("a", { hasText: /^Raise$/ }).click();
  const filled = async (name) => page.inputValue(`#${name}`);
  assert.deepEqual([await filled("subject"), await filled("value"), await filled("time"), await filled("reason")], ["kim", "2000", "7d", why]);
  await page.click("form[action='/allowances'] .pri");
  await page.locator("[role=status]", { hasText: "The limit of kim is raised" }).first().waitFor();
  assert.equal(await page.locator("li", { hasText: why }).count(), 0, "it is answered");
  await context.close();
  await kim.goto(`${house.origin}/notices`);
  await kim.locator("li", { hasText: "raised until" }).filter({ hasText: why }).waitFor();
  await kim.context().close();
});

test("an act waits until the second administrator approves it", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/approvals`);
  assert.deepEqual(await violations(page), []);
  await page.click("form[action='/approvals/four-eyes'] button");
  await page.locator("p", { hasText: "wait up to 24 hours" }).waitFor();
  await page.goto(`${house.origin}/policies`);
  await page.fill("#name", "class");
  await page.click("button:has-text('Create policy')");
  await page.locator("main", { hasText: "until another administrator approves it" }).waitFor();
  await page.goto(`${house.origin}/approvals`);
  await page.locator("form.wish", { hasText: "New policy: class" }).waitFor();
  assert.equal(await page.locator("button[value=release]").count(), 0, "one's own act");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await overflow(page), 0);

  const grace = await as("grace");
  await grace.goto(`${house.origin}/notices`);
  await grace.locator("li", { hasText: "1 change waits for your approval" }).waitFor();
  await grace.goto(`${house.origin}/approvals`);
  await grace.click("button[value=release]");
  await grace.locator("[role=status]", { hasText: "approved and done" }).first().waitFor();
  await grace.context().close();
  await page.goto(`${house.origin}/policies`);
  await page.locator("td", { hasText: "class" }).first().waitFor();
  assert.deepEqual(complaints.filter((line) => !/409/.test(line)), []);
  await context.close();
});

test("a suspension stops what its user has waiting where it is asked to", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/users/kim`);
  await page.locator("a", { hasText: "kims" }).waitFor();
  await page.click("a[href$='/suspend']");
  const stop = page.locator("dialog.question[open] .dan", { hasText: "stop 1 session" });
  await stop.waitFor();
  assert.deepEqual(await violations(page), []);
  await stop.click();
  await page.locator("[role=status]", { hasText: "kim is suspended" }).first().waitFor();
  await page.goto(`${house.origin}/users/kim`);
  await page.locator("main", { hasText: "No session runs or waits" }).waitFor();
  await context.close();
});
