// Environments in the console, as an administrator brings them on a stick: a bundle is chosen and comes in with its progress,
// its page says what it holds, a session starts from it, and a newer version comes beside the one before. What is not signed,
// was changed, was cut or is older is refused on the page, in the language of its reader, with and without script.
//
// Proves too: `an_environment_travels_as_a_file`

import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { system } from "./lib/archive.mjs";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, openWith, setUp, until } from "./lib/house.mjs";

const root = process.getuid() === 0;
// Sent in several pieces: more than one piece holds.
const FILLED = 20 << 20;

let browser;
let house;
let state;
let folder;

const at = (name) => join(folder, name);
const session = (name) => JSON.parse(house.command("session", "get", name, "-o", "json"));

/// Packs an image of programs of this machine into bundles, as another box does.
async function pack() {
  const there = await open();
  try {
    for (const version of ["1.0", "2.0"]) {
      const place = at(version);
      mkdirSync(join(place, "root/etc"), { recursive: true });
      writeFileSync(join(place, "root/etc/version"), `${version}\n`);
      writeFileSync(join(place, "root/etc/filled"), Buffer.alloc(FILLED, "0123456789abcdef"));
      const archive = system(place, `localhost/lab/tiny:${version}`, ["/bin/sh", "/bin/sleep"]);
      there.command("image", "import", archive);
    }
    there.command("environment", "key", at("lab.key"));
    writeFileSync(at("licence"), "MIT, the whole of it");
    const packed = (file, version, ...more) =>
      there.command(
        "environment", "pack", "--as", `tiny:${version}`, "--file", at(file), "--about", "A small shell",
        "--licences", at("licence"), "--shm", "8m", ...more, `lab/tiny:${version}`,
      );
    packed("first.tar", "1.0", "--key", at("lab.key"));
    packed("second.tar", "2.0", "--key", at("lab.key"));
    packed("unsigned.tar", "1.0");
  } finally {
    await there.close();
  }
  writeFileSync(at("keys"), readFileSync(at("lab.key.pub")), { mode: 0o600 });
  const whole = readFileSync(at("first.tar"));
  writeFileSync(at("cut.tar"), whole.subarray(0, whole.length - 4096));
  const changed = Buffer.from(whole);
  changed[Math.floor(whole.length / 2)] ^= 1;
  writeFileSync(at("changed.tar"), changed);
}

before(async () => {
  if (!root) return;
  folder = mkdtempSync(join(tmpdir(), "fardel-environments-"));
  await pack();
  browser = await launch();
  house = await openWith({ FARDEL_ENVIRONMENT_KEYS_FILE: at("keys") });
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/// Chooses a bundle on the page and sends it.
async function send(page, file) {
  await page.goto(`${house.origin}/environments`);
  await page.setInputFiles("#archive", at(file));
  await page.click("#import button.pri");
}

const listed = () => JSON.parse(house.command("environment", "ls", "-o", "json")).items.map(({ name, version }) => `${name} ${version}`).sort();

test("bundles that are not what they should be are refused on the page and leave nothing", async (t) => {
  if (!root) return t.skip("images are unpacked by root");
  for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["ko-KR", false]]) {
    const context = await browser.newContext({ storageState: state, locale, javaScriptEnabled: script });
    const page = await context.newPage();
    await page.goto(`${house.origin}/environments`);
    await page.locator(".empty").waitFor();
    await send(page, "unsigned.tar");
    await page.locator("#fault-archive").waitFor();
    const said = await page.locator("#fault-archive").innerText();
    assert.match(said, locale === "ko-KR" ? /서명이 없습니다/ : /is not signed/);
    if (script) assert.deepEqual(await violations(page), []);
    assert.deepEqual(listed(), []);
    // What is only found by reading all of it is told where the work is listed.
    const told = locale === "ko-KR" ? [["cut.tar", /잘렸습니다/], ["changed.tar", /매니페스트와 다릅니다/]] : [["cut.tar", /ends before its last member/], ["changed.tar", /is not what the manifest says/]];
    for (const [file, words] of told) {
      // The list still has the rows of the rounds before: each has the name of its own file.
      const named = `${locale}-${script}-${file}`;
      copyFileSync(at(file), at(named));
      await send(page, named);
      await page.waitForURL(/\/images/);
      const row = page.locator("#jobs li", { hasText: named }).filter({ hasText: words });
      await until(() => `the page says what is wrong with ${named}`, async () => {
        if (!script) await page.goto(`${house.origin}/images`);
        return (await row.count()) === 1;
      });
    }
    assert.deepEqual(listed(), []);
    await context.close();
  }
});

test("an environment comes in from a file, starts, and a newer one comes beside it", async (t) => {
  if (!root) return t.skip("images are unpacked by root");
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const offsets = [];
  const said = [];
  await page.exposeFunction("fardelSaid", (words) => said.push(words));
  await page.route("**/api/v1/uploads/*", (route) => {
    if (route.request().method() === "PATCH") offsets.push(Number(route.request().headers()["upload-offset"]));
    return route.continue();
  });
  await page.goto(`${house.origin}/environments`);
  await page.evaluate(() => {
    const place = document.querySelector("#import [role=status]");
    new MutationObserver(() => globalThis.fardelSaid(place.textContent)).observe(place, { childList: true, characterData: true, subtree: true });
  });
  await page.setInputFiles("#archive", at("first.tar"));
  await page.click("#import button.pri");
  await page.waitForURL(/\/images/);
  assert.ok(offsets.length >= 2, `${offsets}`);
  assert.ok(said.some((words) => /\d/.test(words)), `${said}`);
  await until(() => `the first is there: ${listed()}`, async () => listed().includes("tiny 1.0"));

  await page.goto(`${house.origin}/environments`);
  await page.click("a:has-text('tiny 1.0')");
  const words = await page.locator("main").innerText();
  for (const expected of ["A small shell", "lab", "MIT, the whole of it", "8"]) assert.ok(words.includes(expected), `${expected}: ${words}`);
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  assert.equal(await overflow(page), 0);
  await page.setViewportSize({ width: 1280, height: 800 });
  // The launch form has the image, and what its maker recommends.
  await page.locator("a.btn", { hasText: "Launch" }).click();
  await page.waitForURL(/\/sessions\/new\?/);
  const image = "lab/tiny:1.0";
  assert.equal(await page.locator("[name=image]:checked").inputValue(), image);
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", "first", image, "--", "/bin/sh", "-c", "read -r v < /etc/version; echo it is $v; exec sleep 100000");
  await until(() => "its session runs", async () => session("first").state === "running");
  assert.equal(session("first").resources.shm, 8 << 20, "as its maker recommends");
  await until(() => "it says its version", async () => house.command("logs", "first").includes("it is 1.0"));

  // The page leads on by itself, and would break off what was asked meanwhile.
  await send(page, "second.tar");
  await page.waitForURL(/\/images/);
  await until(() => `the second is there: ${listed()}`, async () => listed().length === 2);
  assert.deepEqual(listed(), ["tiny 1.0", "tiny 2.0"]);
  assert.equal(session("first").state, "running");
  await page.goto(`${house.origin}/environments`);
  const newest = await page.locator("li", { has: page.locator(".pill.o") }).innerText();
  assert.match(newest, /tiny 2\.0/);

  // The one in use stays, and the page says why.
  await page.click("a:has-text('tiny 1.0')");
  await page.click(".act [popovertarget=remove]");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#remove .dan")]);
  await until(() => "the page says why it stays", async () => /1 sessions? .*start/.test(await page.locator("body").innerText()));
  assert.deepEqual(listed(), ["tiny 1.0", "tiny 2.0"]);
  // Once its session is over it goes, and then it is older than what is here.
  house.command("session", "kill", "first");
  await until(() => "the session is over", async () => session("first").state === "ended");
  await page.goto(`${house.origin}/environments`);
  await page.click("a:has-text('tiny 1.0')");
  await page.click(".act [popovertarget=remove]");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#remove .dan")]);
  assert.deepEqual(listed(), ["tiny 2.0"]);
  await send(page, "first.tar");
  await page.locator("#fault-archive").waitFor();
  assert.match(await page.locator("#fault-archive").innerText(), /older than 2\.0/);
  await page.check("[name=allow_older]");
  await page.setInputFiles("#archive", at("first.tar"));
  await page.click("#import button.pri");
  await page.waitForURL(/\/images/);
  await until(() => `it is back: ${listed()}`, async () => listed().length === 2);
  // What the browser says of the refusals themselves.
  assert.deepEqual(complaints.filter((line) => !/4\d\d/.test(line)), []);
  await context.close();
});
