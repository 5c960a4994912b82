// What a person does on the first day, in a real browser against the real binary: set up, look around,
// launch, stop; with the keyboard alone, and without script. On every page: no violation of
// accessibility, nothing refused by the server's own policy, nothing wider than the screen.
//
// Proves too: `a_terminal_keeps_its_scrollback_across_a_new_server_and_takes_input_and_size`
//
// Proves too: `tests/browser/pages.mjs`
//
// Promise (Installation and console): A session can be launched and stopped with the keyboard alone, and in a
// browser without JavaScript.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { image, packed } from "./lib/archive.mjs";
import { launch, listen, looks, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, signIn, until } from "./lib/house.mjs";

const PAGES = ["/", "/sessions", "/sessions/new", "/queue", "/gpus", "/history", "/images", "/environments", "/folders", "/users", "/me", "/me/keys", "/me/ssh-keys", "/me/startup", "/system/checks", "/system/settings", "/system/support", "/docs", "/api/docs", "/about", "/trust", "/system/tls", "/setup/time", "/setup/test", "/setup/report", "/nothing-here"];
const FIRST_VISIT_BYTES = 130_000;

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a first visit carries no more than it promises", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const debug = await context.newCDPSession(page);
  await debug.send("Network.enable");
  let bytes = 0;
  debug.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  await page.goto(`${house.origin}/login`, { waitUntil: "networkidle" });
  await context.close();
  console.log(`first visit: ${bytes} bytes`);
  assert.ok(bytes > 0 && bytes <= FIRST_VISIT_BYTES, `${bytes} bytes`);
});

test("the setup link makes the first administrator, once", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const complaints = listen(page);
  const link = await house.setupLink();
  await page.goto(link);
  assert.deepEqual(await violations(page), []);
  await setUp(page, house);
  assert.deepEqual(complaints, []);
  state = await context.storageState();
  const again = await context.newPage();
  await again.goto(link);
  assert.equal(await again.locator("form[action='/setup'] #password").count(), 0, "the link works twice");
  await context.close();
});

for (const path of PAGES) {
  test(`${path} is accessible, obeys the policy and fits, in both languages and themes`, async () => {
    const told = [];
    // Both languages at once, on two cores: each looks at pages of its own.
    const inLanguage = async (locale) => {
      for (const { colorScheme, widths } of looks(path).filter((look) => look.locale === locale)) {
        const context = await browser.newContext({ storageState: state, locale, colorScheme });
        const page = await context.newPage();
        const complaints = listen(page);
        // The stream of changes never ends, so the network is never idle.
        await page.goto(house.origin + path, { waitUntil: "load" });
        for (const width of [1440, 390]) {
          await page.setViewportSize({ width, height: 900 });
          const wide = await overflow(page);
          if (wide > 0) told.push(`${locale} ${colorScheme} ${width} px: ${wide} px too wide`);
          if (!widths.includes(width)) continue;
          const lines = await violations(page);
          told.push(...lines.map((line) => `${locale} ${colorScheme} ${width} px: ${line}`));
        }
        // A page that is not there says so to the browser as well.
        told.push(...complaints.filter((line) => path !== "/nothing-here" || !line.includes("404")));
        await context.close();
      }
    };
    await Promise.all(["en-US", "ko-KR"].map(inLanguage));
    assert.deepEqual(told, []);
  });
}

/// Presses Tab until `selector` has the focus; fails when it never gets it.
async function tabTo(page, selector) {
  for (let presses = 0; presses < 120; presses += 1) {
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) ?? false, selector)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never reaches ${selector}`);
}

/// Does `act`, which sends the launch form, once the preview has answered the last change of `name`; the
/// button follows the preview, which follows the form.
async function launchAs(page, name, fill, act) {
  await Promise.all([
    page.waitForResponse((answer) => answer.url().endsWith("/sessions/new/preview") && (answer.request().postData() ?? "").includes(name)),
    fill(),
  ]);
  await page.locator("#cli-line", { hasText: name }).waitFor();
  await Promise.all([page.waitForURL((address) => !address.pathname.endsWith("/new")), act()]);
}

test("keyboard alone launches a session and stops it", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  await tabTo(page, "#cpu");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("0.5");
  await tabTo(page, "#name");
  await launchAs(
    page,
    "by-keyboard",
    () => page.keyboard.type("by-keyboard"),
    async () => {
      await tabTo(page, "button[name=act][value=launch]");
      await page.keyboard.press("Enter");
    },
  );
  await page.goto(`${house.origin}/sessions`);
  const row = page.locator("tr", { hasText: "by-keyboard" });
  await until(() => "the session in the list", async () => (await row.count()) > 0);
  // The list is alive: rows change under the keyboard, and the focus stays where it was put.
  await tabTo(page, "tr:has(a.nm) td.act a");
  await page.keyboard.press("Enter");
  await page.locator("dialog.question[open] .verbs").waitFor();
  await tabTo(page, "dialog.question .verbs .dan");
  await page.keyboard.press("Enter");
  await page.locator("dialog.question[open] form[action='/sessions/stop']").waitFor();
  await tabTo(page, "dialog.question form[action='/sessions/stop'] button:not([name=force])");
  await Promise.all([page.waitForEvent("framenavigated"), page.keyboard.press("Enter")]);
  await page.waitForLoadState("load");
  await until(
    () => "the session stops",
    async () => (await row.locator("input[name=id]").count()) === 0,
  );
  await context.close();
});

test("without script a session is launched, seen and stopped", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await signIn(page, house);
  await page.goto(`${house.origin}/sessions/new`);
  await page.fill("#name", "without-script");
  await page.fill("#cpu", "0.5");
  await page.click("button[name=act][value=launch]");
  await page.goto(`${house.origin}/sessions`);
  const row = page.locator("tr", { hasText: "without-script" });
  assert.equal(await row.count(), 1);
  // The menu and the question are pages of their own.
  await row.locator("td.act a").click();
  await page.click(".verbs .dan");
  await page.click("form[action='/sessions/stop'] button:not([name=force])");
  await until(
    () => "the session stops",
    async () => {
      await page.goto(`${house.origin}/sessions`);
      return (await page.locator("tr", { hasText: "without-script" }).locator("input[name=id]").count()) === 0;
    },
  );
  await context.close();
});

test("marked sessions keep their marks while the list changes, and are stopped together", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const made = ["first-of-two", "second-of-two", "left-alone"];
  for (const name of made) {
    house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", name, "host", "--", "sh", "-c", "while :; do echo on; sleep 1; done");
  }
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions`);
  const row = (name) => page.locator("tr", { hasText: name });
  await row("first-of-two").locator("input[name=id]").check();
  await row("second-of-two").locator("a.nm").focus();
  await page.keyboard.press("x");
  // A fourth one changes the list under the marks.
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", "came-later", "host", "--", "true");
  await row("came-later").waitFor();
  assert.equal(await page.locator("input[name=id]:checked").count(), 2);
  assert.match(await page.locator("#marked-count").innerText(), /^2 /);
  assert.deepEqual(await violations(page), []);
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.locator("dialog.question .named li").count(), 2);
  await Promise.all([page.waitForEvent("framenavigated"), page.click("dialog.question form button:not([name=force])")]);
  for (const name of made.slice(0, 2)) {
    await until(() => `${name} stops`, async () => (await row(name).locator("input[name=id]").count()) === 0);
  }
  assert.equal(await row("left-alone").locator("input[name=id]").count(), 1);
  // A batch session is watched by its output; its terminal is one step away.
  await row("left-alone").locator("a.nm").click();
  await page.locator("#log").waitFor();
  await page.click(".tabs a >> nth=0");
  await page.locator("#terminal").waitFor();
  await context.close();
});

test("an upload goes on after a lost connection and after a reload, and the image appears", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "fardel-archive-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const archive = image(folder, "localhost/sent-in-pieces:1", 20 << 20);
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const offsets = [];
  let lost = 0;
  await page.route("**/api/v1/uploads/*", async (route) => {
    const request = route.request();
    if (request.method() !== "PATCH") return route.continue();
    offsets.push(Number(request.headers()["upload-offset"]));
    // The second piece is lost once; it, and all after it, until the page is loaded again.
    if (offsets.length >= 2 && lost < 2) {
      lost += 1;
      return route.abort("connectionreset");
    }
    return route.continue();
  });
  const choose = async () => {
    await page.goto(`${house.origin}/images`);
    await page.setInputFiles("#archive", archive);
    await page.click("#import button");
  };
  const stored = () => Number(execFileSync("du", ["-s", "--block-size=1", join(house.environment.FARDEL_DATA, "images")], { encoding: "utf8" }).split("\t")[0]);
  const before = stored();
  await choose();
  await until(() => `a second loss after ${offsets}`, async () => lost === 2);
  page.once("dialog", (dialog) => dialog.accept());
  await choose();
  await page.waitForURL(/notice=import|\/images$/);
  await page.locator("tr", { hasText: "sent-in-pieces" }).waitFor({ timeout: 20_000 });
  // Nothing that had arrived was sent again.
  assert.deepEqual(offsets.slice(0, 3), [0, 8 << 20, 8 << 20]);
  assert.ok(offsets.slice(3).every((offset) => offset >= 8 << 20), `${offsets}`);
  // The same layer under another name takes no place a second time.
  const once = stored();
  assert.ok(once - before >= 20 << 20, `${once - before} bytes were stored`);
  packed(folder, "localhost/sent-again:1");
  await choose();
  await page.waitForURL(/notice=import|\/images$/);
  await page.locator("tr", { hasText: "sent-again" }).waitFor({ timeout: 20_000 });
  // What an import lays aside is removed at its end.
  await until(() => `${stored() - once} more bytes are stored of the same layer`, async () => stored() - once < 1 << 20);
  await context.close();
});

test("a terminal answers with the session's own limits, and after a reload as well", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  // Without WebGL, as on a thin client, the terminal draws with elements, and its words can be read.
  const thin = await launch({ webgl: false });
  t.after(() => thin.close());
  const context = await thin.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  await page.fill("#cpu", "1");
  await launchAs(
    page,
    "terminal",
    () => page.fill("#name", "terminal"),
    () => page.click("button[name=act][value=launch]"),
  );
  await page.goto(`${house.origin}/sessions`);
  await Promise.all([
    page.waitForURL((address) => /^\/sessions\/[0-9a-f-]{8,}/.test(address.pathname)),
    page.locator("tr", { hasText: "terminal" }).locator("a.nm").click(),
  ]);
  // However early the page was opened, the terminal comes by itself.
  await until(
    () => `the session runs: ${house.said().slice(-2000)}`,
    async () => (await page.locator("#terminal").count()) > 0,
  );
  const address = page.url();
  const shown = () => page.locator("#terminal .xterm-rows").innerText();
  await page.locator("#terminal .xterm").waitFor();
  await page.click("#terminal");
  await page.keyboard.type("echo cores=$(nproc)\n");
  await until(
    () => "nproc answers 1",
    async () => /cores=1\b/.test(await shown()),
  );
  await page.reload();
  await page.locator("#terminal .xterm").waitFor();
  await until(
    () => "the scrollback comes back",
    async () => /cores=1\b/.test(await shown()),
  );
  // With WebGL, which is what an ordinary browser has, nothing is refused by the policy.
  const ordinary = await browser.newContext({ storageState: state });
  const seen = await ordinary.newPage();
  const complaints = listen(seen);
  await seen.goto(address);
  await seen.locator("#terminal canvas").first().waitFor();
  assert.deepEqual(await violations(seen), []);
  assert.deepEqual(complaints, []);
  await ordinary.close();
});
