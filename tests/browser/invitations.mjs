// A lead makes a link; its holder makes an account in the browser and is a member at once, or joins with the
// account that is signed in. A user leaves with a plan of what that ends.
//
// Promise (Isolation and access): A link makes as many accounts as it says, each a member of its project, and is of no use after.

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
  folder = mkdtempSync(join(tmpdir(), "fardel-invitations-"));
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  house.command("user", "add", "jae", "--password-file", password);
  house.command("project", "create", "vision", "--title", "Vision Lab");
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

/// The page of invitations of the project vision.
async function invitations(page) {
  await page.goto(`${house.origin}/projects`);
  await page.click("a:has-text('Vision Lab')");
  await page.click("a[href$='/invitations']");
  await page.locator("#uses").waitFor();
}

/// Makes a link for so many uses; gives it.
async function link(page, uses) {
  await page.fill("#uses", String(uses));
  await page.click("button:has-text('Create link')");
  return page.locator("#link").innerText();
}

/// Fills in the form of a new account and sends it.
async function fill(page, name, password = PERSON.password) {
  await page.fill("#name", name);
  await page.fill("#full_name", "Kim Minji");
  await page.fill("#password", password);
  await page.fill("#again", password);
  await page.click("button.pri");
}

test("a link makes accounts that are members, and is of no use once it is used up", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  const complaints = listen(page);
  await invitations(page);
  assert.deepEqual(await violations(page), []);
  // What is no number of uses stands at its field.
  await page.fill("#uses", "501");
  await page.click("button:has-text('Create link')");
  await page.locator("#uses[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#uses"), "501");
  const address = await link(page, 2);
  assert.match(address, /\/join\?code=[\w-]{43}$/);
  await page.locator(".qr svg").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  // It is shown this once.
  await page.reload();
  assert.equal(await page.locator("#link").count(), 0);
  assert.match(await page.locator("tbody tr").first().innerText(), /0 of 2/);

  const stranger = await browser.newContext({ locale: "en-US", viewport: { width: 390, height: 844 } });
  const other = await stranger.newPage();
  const theirs = listen(other);
  await other.goto(address);
  await other.locator("h1", { hasText: "Join Vision Lab" }).waitFor();
  assert.deepEqual(await violations(other), []);
  assert.equal(await overflow(other), 0);
  // A name that is taken, and passwords that differ: at their field, and the link is still good.
  await fill(other, "jae");
  await other.locator("#name[aria-invalid=true]").waitFor();
  await other.fill("#name", "minji");
  await other.fill("#password", PERSON.password);
  await other.fill("#again", "another one entirely");
  await other.click("button.pri");
  await other.locator("#again[aria-invalid=true]").waitFor();
  await fill(other, "minji");
  await other.locator(".toast, [role=status]", { hasText: "Welcome" }).first().waitFor();
  await other.goto(`${house.origin}/projects`);
  await other.locator("text=Vision Lab").first().waitFor();
  assert.deepEqual(theirs.filter((line) => !/422|409/.test(line)), []);
  await stranger.close();

  // One who has an account joins with it.
  const own = await browser.newContext({ locale: "en-US" });
  const jae = await own.newPage();
  await jae.goto(address);
  await jae.click("a:has-text('Sign in')");
  await jae.fill("#name", "jae");
  await jae.fill("#password", PERSON.password);
  await jae.click("button.pri");
  await jae.click("button:has-text('Join as jae')");
  await jae.locator(".toast, [role=status]", { hasText: "Welcome" }).first().waitFor();
  await own.close();

  const late = await browser.newContext({ locale: "en-US" });
  const third = await late.newPage();
  await third.goto(address);
  await third.locator("text=was used, was revoked or has expired").waitFor();
  assert.equal(await third.locator("#password").count(), 0);
  await late.close();
  await page.goto(`${house.origin}/projects`);
  await page.click("a:has-text('Vision Lab')");
  const members = page.locator("#list tbody");
  await until(() => "both are members", async () => /minji/.test(await members.innerText()) && /jae/.test(await members.innerText()));
  assert.deepEqual(complaints.filter((line) => !/422/.test(line)), []);
  await context.close();
});

test("a link that is revoked is of no use, also in Korean and without script", async () => {
  const context = await signedIn({ javaScriptEnabled: false, locale: "ko-KR" });
  const page = await context.newPage();
  await invitations(page).catch(() => {});
  await page.fill("#uses", "3");
  await page.click("button.pri");
  const address = await page.locator("#link").innerText();
  await page.click("td.act a");
  await page.click("main form button");
  assert.equal(await page.locator("#link").count(), 0);
  const stranger = await browser.newContext({ locale: "ko-KR" });
  const other = await stranger.newPage();
  await other.goto(address);
  await other.locator("text=초대는 이미 쓰였거나").waitFor();
  await stranger.close();
  await context.close();
});

test("a user leaves: the plan says what ends, and they cannot come back", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/users/jae`);
  await page.click("a[href$='/menu']");
  await page.click("a[href$='/remove']");
  await page.locator("h1", { hasText: "Remove jae?" }).waitFor();
  const plan = await page.locator(".list.att").innerText();
  assert.match(plan, /1 sign-in/);
  assert.match(plan, /2 roles/);
  assert.deepEqual(await violations(page), []);
  await page.click("button:has-text('Remove user')");
  await page.locator(".toast, [role=status]", { hasText: "jae cannot sign in any more" }).first().waitFor();
  const stranger = await browser.newContext({ locale: "en-US" });
  const other = await stranger.newPage();
  await other.goto(`${house.origin}/login`);
  await other.fill("#name", "jae");
  await other.fill("#password", PERSON.password);
  await other.click("button.pri");
  await other.locator("[role=alert]").first().waitFor();
  await stranger.close();
  await context.close();
});
