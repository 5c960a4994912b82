// A user sets a second factor up with a picture and a key, signs in with a computed code, loses the phone and uses a
// recovery code, and turns it off.
//
// Proves too: `a_stranger_shuts_nobody_out`

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp } from "./lib/house.mjs";

let browser;
let house;
let state;
/// What the app on the phone holds, and the sheet of paper.
let key;
let recovery;

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

/// The code of RFC 6238 for this moment, as an app computes it; `off` steps later.
function code(off = 0) {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const bits = [...key].map((letter) => letters.indexOf(letter).toString(2).padStart(5, "0")).join("");
  const secret = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + off));
  const digest = createHmac("sha1", secret).update(step).digest();
  const at = digest[19] & 15;
  return String((digest.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

const wrong = () => String((Number(code()) + 123_457) % 1_000_000).padStart(6, "0");

async function password(page) {
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", PERSON.name);
  await page.fill("#password", PERSON.password);
  await page.click("button.pri");
  await page.locator("#code").waitFor();
}

test("a second factor is set up with the password, a picture and the first code", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/me`);
  await page.click("a[href='/me/second-factor']");
  assert.deepEqual(await violations(page), []);
  await page.fill("#password", "not the password 1");
  await page.click("button:has-text('Set up')");
  await page.locator("#password[aria-invalid=true]").waitFor();
  await page.fill("#password", PERSON.password);
  await page.click("button:has-text('Set up')");
  await page.locator(".qr svg").waitFor();
  key = (await page.locator("#key").innerText()).replaceAll(" ", "");
  assert.match(key, /^[A-Z2-7]{32}$/);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.fill("#code", wrong());
  await page.click("button:has-text('Confirm')");
  await page.locator("#code[aria-invalid=true]").waitFor();
  assert.ok(!(await page.locator("form", { has: page.locator("#code") }).innerText()).includes("recovery code"), "there is none yet");
  assert.equal((await page.locator("#key").innerText()).replaceAll(" ", ""), key, "another key");
  await page.fill("#code", code(-1));
  await page.click("button:has-text('Confirm')");
  recovery = (await page.locator("#codes").innerText()).trim().split(/\s+/);
  assert.equal(recovery.length, 10);
  assert.deepEqual(await violations(page), []);
  await page.click("a:has-text('I have saved them')");
  await page.locator("#p5 ~ .r .pill.ok").waitFor();
  assert.deepEqual(complaints.filter((line) => !/422/.test(line)), []);
  await context.close();
});

for (const script of [true, false]) {
  test(`a computed code signs in once, ${script ? "with" : "without"} script`, async () => {
    const context = await browser.newContext({ locale: "en-US", javaScriptEnabled: script });
    const page = await context.newPage();
    await password(page);
    if (script) {
      assert.deepEqual(await violations(page), []);
      assert.equal(await overflow(page), 0);
    }
    await page.fill("#code", wrong());
    await page.click("button.pri");
    await page.locator("#code[aria-invalid=true]").waitFor();
    // Each of both browsers has a step of its own.
    const typed = code(script ? 0 : 1);
    await page.fill("#code", typed);
    await page.click("button.pri");
    await page.waitForURL(`${house.origin}/`);
    const second = await browser.newContext({ locale: "en-US", javaScriptEnabled: script });
    const other = await second.newPage();
    await password(other);
    await other.fill("#code", typed);
    await other.click("button.pri");
    await other.locator("text=was used already").waitFor();
    await second.close();
    await context.close();
  });
}

test("a recovery code signs in once, on a phone in Korean and in the dark", async () => {
  const options = { locale: "ko-KR", colorScheme: "dark", viewport: { width: 360, height: 740 } };
  const context = await browser.newContext(options);
  const page = await context.newPage();
  await password(page);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.fill("#code", recovery[0].toLowerCase());
  await page.click("button.pri");
  await page.waitForURL(`${house.origin}/`);
  await page.goto(`${house.origin}/me/second-factor`);
  assert.equal(await page.locator("dl.kv dd").nth(1).innerText(), "9");
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  // It is turned off by the password and another code, and asked for no more.
  await page.fill("#password", PERSON.password);
  await page.fill("#code", recovery[1]);
  // The page takes the notice out of its address, so who waits must wait before the click.
  await Promise.all([page.waitForURL(/\/me\?notice=factor-off/), page.click("button[value=off]")]);
  await page.goto(`${house.origin}/me/second-factor`);
  await page.locator("button[value=replace].pri").waitFor();
  await context.close();
});
