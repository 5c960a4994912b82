// One account with its page alone: full name and address, refused at their field; a role with an end, taken away after a
// question; in both languages, and without script.
//
// Proves too: `tests/browser/administration.mjs`

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { focusGiven, launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp } from "./lib/house.mjs";

let browser;
let house;
let folder;
let state;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-accounts-"));
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  for (const name of ["jae", "kim"]) house.command("user", "add", name, "--password-file", password);
  house.command("user", "set", "kim", "--email", "kim@lab.example");
  house.command("domain", "create", "biology");
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

/// Sends a form past the browser's own checks.
async function send(page, action) {
  await Promise.all([
    page.waitForEvent("framenavigated"),
    page.locator(`form[action$='${action}'] button.btn`).first().click(),
  ]);
  await page.waitForLoadState("load");
}

/// Whether a field is marked, has the focus, and is described by a sentence; its value.
const marked = async (page, field) => {
  await focusGiven(page);
  return page.locator(`#${field}`).evaluate((input) => ({
    invalid: input.getAttribute("aria-invalid") === "true",
    focus: document.activeElement === input,
    value: input.value,
  }));
};

test("a full name and an address are set, and what cannot be stands at its field", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/users/jae`);
  assert.deepEqual(await violations(page), []);
  for (const [address, why] of [["kim@lab.example", /another account/i], ["no address", /no e-mail/]]) {
    await page.fill("#full_name", "Jae Park");
    await page.fill("#email", address);
    await send(page, "/profile");
    assert.deepEqual(await marked(page, "email"), { invalid: true, focus: true, value: address });
    assert.match(await page.locator("main").innerText(), why);
    assert.equal(await page.inputValue("#full_name"), "Jae Park");
    assert.deepEqual(await violations(page), []);
  }
  await page.goto(`${house.origin}/users/jae`);
  await page.locator("main .head a[href$='/password']").click();
  await page.getByRole("link", { name: "Cancel" }).click();
  assert.match(await page.locator("h1").innerText(), /^jae/, "Cancel leads back to the user");
  await page.fill("#full_name", "Jae Park");
  await page.fill("#email", "Jae@lab.example");
  await send(page, "/profile");
  assert.match(await page.locator(".head").innerText(), /Jae Park/);
  assert.equal(await page.inputValue("#email"), "jae@lab.example");
  await page.goto(`${house.origin}/users?q=jae@lab`);
  assert.match(await page.locator("#list").innerText(), /Jae Park/);
  assert.deepEqual(complaints.filter((one) => !/409|422/.test(one)), []);
  await context.close();
});

test("a role with an end is given and taken away after a question, also in Korean without script", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/users/kim`);
  await page.selectOption("#role", "auditor");
  await page.selectOption("#domain", "default");
  await page.fill("#until", "2001-01-01");
  await send(page, "/grants");
  assert.deepEqual(await marked(page, "until"), { invalid: true, focus: true, value: "2001-01-01" });
  await page.fill("#until", "2999-02-28");
  await send(page, "/grants");
  const roles = page.locator("section", { has: page.locator("#u6") });
  assert.match(await roles.innerText(), /Auditor default/);
  assert.match(await roles.innerText(), /2999/);
  assert.match(house.command("role", "ls", "kim"), /auditor/);
  assert.deepEqual(await violations(page), []);
  await context.close();

  const plain = await signedIn({ javaScriptEnabled: false, locale: "ko-KR", colorScheme: "dark", viewport: { width: 390, height: 844 } });
  const korean = await plain.newPage();
  await korean.goto(`${house.origin}/users/kim`);
  assert.ok((await overflow(korean)) <= 0);
  await korean.locator("a[href*='grants/revoke']").click();
  assert.match(await korean.locator("h1").last().innerText(), /^kim의 .* 역할을 거둘까요/);
  await korean.click("form[action$='/grants/revoke'] button");
  assert.doesNotMatch(house.command("role", "ls", "kim"), /auditor/);
  await plain.close();
});

test("the first page that a browser sees tells its time by the browser's clock, and says UTC without script", async () => {
  const { pathname, search } = new URL(house.command("user", "sign-in-link", "jae").trim().split("\n")[0]);
  for (const [locale, script, told] of [
    ["en-US", true, /\d+ [A-Z][a-z]+ \d\d:\d\d$/],
    ["ko-KR", true, /^\d+월 \d+일 \d\d:\d\d$/],
    ["en-US", false, /^\d+ [A-Z][a-z]+ \d\d:\d\d UTC$/],
    ["ko-KR", false, /^\d+월 \d+일 \d\d:\d\d UTC$/],
  ]) {
    const context = await browser.newContext({ locale, timezoneId: "Asia/Kolkata", javaScriptEnabled: script });
    const page = await context.newPage();
    await page.goto(house.origin + pathname + search);
    const time = page.locator("main time");
    const words = (await time.innerText()).trim();
    assert.match(words, told);
    // Half an hour beside the hour: by no mistake it is another zone's.
    const ends = new Date(await time.getAttribute("datetime"));
    const minute = (ends.getUTCMinutes() + (script ? 30 : 0)) % 60;
    assert.match(words, new RegExp(`:${String(minute).padStart(2, "0")}( UTC)?$`));
    if (script) assert.deepEqual(await violations(page), []);
    await context.close();
  }
});
