// The audit log in a real browser: an administrator finds who did what, takes it as a file for a spreadsheet and as an
// export that verifies; a user reads their own acts on their account, and nothing of others.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { cookieOf } from "./lib/crowd.mjs";
import { open, PERSON, setUp, until } from "./lib/house.mjs";

const SESSIONS = 60;
const MEMBER = { name: "nick", password: "another walk by the river 8" };

let browser;
let house;
let state;
let folder;

before(async () => {
  browser = await launch();
  house = await open();
  folder = mkdtempSync(join(tmpdir(), "fardel-audit-"));
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const file = join(folder, "password");
  writeFileSync(file, MEMBER.password, { mode: 0o600 });
  house.command("user", "add", MEMBER.name, "--password-file", file);
  const later = new Date(Date.now() + 86_400_000).toISOString();
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", later, "--name", "sweep", "--replicas", String(SESSIONS), "host", "--", "true");
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const rows = (page) => page.locator("#list tbody tr");

test("an administrator finds acts, takes them as a file, and an export that verifies", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US", acceptDownloads: true });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/`);
  await page.click("nav >> text=Audit log");
  await page.locator("h1", { hasText: "Audit log" }).waitFor();
  assert.equal(await rows(page).count(), 50);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  // The second page has the oldest: the setup.
  await page.click("#list a[rel=next]");
  await rows(page).filter({ hasText: "set up the server" }).waitFor();
  await page.goto(`${house.origin}/audit`);
  await page.selectOption("#filter [name=act]", "user");
  await until(() => "one act", async () => (await rows(page).count()) === 1);
  assert.match(await rows(page).first().innerText(), /nick/);
  assert.match(page.url(), /act=user/);
  await page.goto(`${house.origin}/audit?q=since%3Ayesterday`);
  await page.locator("#filter-fault", { hasText: "is not a time" }).waitFor();
  await page.goto(`${house.origin}/audit?q=user%3Anobody`);
  await page.locator(".empty", { hasText: "No act matches" }).waitFor();
  assert.deepEqual(await violations(page), []);

  await page.goto(`${house.origin}/audit?act=session`);
  const link = await page.locator("a[href^='/audit.csv']").getAttribute("href");
  const text = await page.evaluate(async (href) => (await fetch(href)).text(), link);
  assert.equal(text.trim().split("\r\n").length, SESSIONS + 1);
  await page.goto(`${house.origin}/audit`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a:has-text('Export to verify')")]);
  const taken = join(folder, "audit.jsonl");
  await download.saveAs(taken);
  const key = join(folder, "fardel.pem");
  writeFileSync(key, house.command("trust"));
  const verify = () => execFileSync(house.binary, ["audit", "verify", taken, "--key", key], { encoding: "utf8", env: { PATH: process.env.PATH } });
  assert.match(verify(), /the export is whole/);
  writeFileSync(taken, readFileSync(taken, "utf8").replace("sweep", "sweet").replace("session.accepted", "session.accepteD"));
  assert.throws(verify, /audit\.broken-at/);
  assert.deepEqual(complaints, []);
  await context.close();
});

test("a user reads their own acts alone, on a phone and in Korean too", async () => {
  const wrong = await fetch(`${house.origin}/login`, {
    method: "POST",
    redirect: "manual",
    headers: { origin: house.origin, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ name: MEMBER.name, password: "not my password 9" }).toString(),
  });
  assert.notEqual(wrong.status, 303);
  const cookie = await cookieOf(house.origin, MEMBER.name, MEMBER.password);
  const [name, value] = [cookie.slice(0, cookie.indexOf("=")), cookie.slice(cookie.indexOf("=") + 1)];
  for (const [locale, colorScheme, width, failed] of [["en-US", "dark", 1280, "failed to sign in"], ["ko-KR", "light", 360, "로그인 실패"]]) {
    const context = await browser.newContext({ locale, colorScheme, viewport: { width, height: 844 } });
    await context.addCookies([{ name, value, url: house.origin }]);
    const page = await context.newPage();
    await page.goto(`${house.origin}/me`);
    await page.locator("table.rows tr", { hasText: failed }).waitFor();
    assert.deepEqual(await violations(page), []);
    assert.equal(await overflow(page), 0);
    await page.goto(`${house.origin}/audit`);
    await rows(page).filter({ hasText: failed }).first().waitFor();
    assert.equal(await rows(page).filter({ hasText: PERSON.name }).count(), 0);
    assert.equal(await rows(page).count(), 2);
    assert.equal(await page.locator("main a[href^='/audit/export']").count(), 0);
    assert.deepEqual(await violations(page), []);
    assert.equal(await overflow(page), 0);
    // On a phone the code of an act stands below its words, in one line.
    const codes = await page.locator("#list td.first .mono").evaluateAll((all) =>
      all.map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        const tops = [...range.getClientRects()].map((line) => Math.round(line.top));
        return { lines: new Set(tops).size, below: one.getBoundingClientRect().top > one.parentElement.querySelector(".dot").getBoundingClientRect().bottom };
      }),
    );
    assert.equal(codes.length, 2);
    assert.ok(width > 400 || codes.every((code) => code.lines === 1 && code.below), JSON.stringify(codes));
    const refused = await page.goto(`${house.origin}/audit/export`);
    assert.equal(refused.status(), 403);
    await context.close();
  }
});
