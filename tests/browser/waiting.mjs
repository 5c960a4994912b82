// What a user does with a session that waits, and what pages say around it: what must end first, hold and release, a
// change with its preview; and what the launch form, the session's page and the overview say of the same machine.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let context;
let page;
let complaints;

const create = (name, ...words) =>
  house.command("session", "create", "host", "--name", name, "--cpu", "0.05", "--mem", "32m", ...words, "--", "sleep", "600");
const seen = (name) => JSON.parse(house.command("session", "get", name, "-o", "json"));
const address = (name) => `/sessions/${seen(name).id}`;
const row = (name) => page.locator("#queue li", { has: page.getByRole("link", { name, exact: true }) });
const reaches = (name, state) => until(() => `${name} is ${state}: ${house.command("ps", "-a")}`, async () => seen(name).state === state);
const visit = (path) => page.goto(`${house.origin}${path}`);
const previewed = (path, act) => Promise.all([page.waitForResponse((answer) => answer.url().endsWith(path)), act()]);

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:4");
  context = await browser.newContext();
  page = await context.newPage();
  complaints = listen(page);
  await setUp(page, house);
  create("limited", "--gpu", "1", "--max-runtime", "2h");
  create("open-end", "--gpu", "0.5");
  await reaches("limited", "running");
  await reaches("open-end", "running");
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("what is left of a GPU beside the share of a preview adds up", async () => {
  await visit("/sessions/new");
  await previewed("/sessions/new/preview", () => page.fill("#gpu", "0.25"));
  const hit = page.locator("#preview .g.hit", { has: page.locator(".sl.ghost") }).first();
  await until(() => "the share is drawn", async () => /0\.25/.test(await hit.locator(".sl.ghost").innerText()));
  const drawn = await hit.locator(".sl").evaluateAll((blocks) => blocks.map((block) => block.getBoundingClientRect().width));
  const bar = (await hit.locator(".rack").boundingBox()).width;
  const free = (await hit.locator(".sl.free").boundingBox()).width;
  assert.ok(Math.abs(free / bar - Number.parseFloat(await hit.locator(".num").innerText())) < 0.02, `${drawn} of ${bar}: ${await hit.innerText()}`);
  const widths = await page.locator("#preview .mini .rack").evaluateAll((all) => all.map((rack) => Math.round(rack.getBoundingClientRect().width)));
  assert.equal(new Set(widths).size, 1, `bars of different widths: ${widths}`);
});

test("a waiting session names what must end, leads there, and offers as many GPUs as are empty", async () => {
  create("big", "--gpu", "4");
  await visit(address("big"));
  const ends = page.locator("ul.awaited");
  const lines = await ends.locator("li").allInnerTexts();
  assert.match(lines[0], /^limited\s+root · 1 GPU · [^·]+ · [^·]+ · ends by /);
  assert.match(lines[1], /^open-end\s+root · 0\.5 GPU · [^·]+ · [^·]+ · no time limit$/);
  assert.match(await page.locator("#console").innerText(), /once enough of these have ended/);
  assert.match(house.command("ps"), /^\s*big\s.*It needs 4 whole GPUs/m);
  await page.locator("#console").getByRole("button", { name: /Start now with 2 GPU/ }).waitFor();
  assert.deepEqual(await violations(page), []);
  await ends.getByRole("link", { name: "limited" }).click();
  assert.equal(new URL(page.url()).pathname, address("limited"));
  await visit("/queue");
  await row("big").getByRole("button", { name: /Start now with 2 GPU/ }).waitFor();
});

test("every reason stands in the row, and a time stands there once", async () => {
  const cores = JSON.parse(house.command("api", "GET", "/overview")).machines[0].cpu;
  house.command("session", "create", "host", "--name", "greedy", "--cpu", String(cores), "--mem", "32m", "--gpu", "4", "--", "sleep", "600");
  create("later", "--start-at", "2032-05-06T07:08:00Z");
  await visit("/queue");
  const told = await row("later").innerText();
  assert.equal(told.match(/6 May/g)?.length, 1, told);
  assert.match(told, /Scheduled to start on 6 May [\s\S]*If there is no room then, it starts later\./);
  const why = house.command("why", "greedy").match(/^ {2}- (.*) \(.*\)$/gm) ?? [];
  const reasons = why.map((line) => line.match(/- (.*) \(/)[1]);
  assert.ok(reasons.length > 1, `${why}`);
  const shown = await row("greedy").innerText();
  for (const reason of reasons) assert.ok(shown.includes(reason), `${reason} is missing in ${shown}`);
  house.command("session", "kill", "greedy", "later");
});

test("hold and release are verbs of the row and of the session's page", async () => {
  await visit("/queue");
  await row("big").getByRole("button", { name: "Put on hold: big" }).click();
  await row("big").getByRole("button", { name: "Release big" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.match(await row("big").innerText(), /on hold/);
  await visit(address("big"));
  await page.locator("#verbs").getByRole("button", { name: "Release" }).click();
  await page.waitForURL((url) => url.pathname === address("big"));
  await page.locator("#verbs").getByRole("button", { name: "Put on hold" }).waitFor();
  assert.ok(seen("big").held_by == null);
  // All that wait of one launch.
  create("sweep", "--gpu", "4", "--replicas", "3");
  await visit("/queue");
  await row("sweep-1").getByRole("button", { name: "Put on hold: sweep-1" }).click();
  await row("sweep-1").getByRole("button", { name: "Release sweep-1" }).waitFor();
  for (const n of [1, 2, 3]) assert.ok(seen(`sweep-${n}`).held_by, `sweep-${n} is not held`);
  house.command("session", "kill", "sweep-1", "sweep-2", "sweep-3");
  assert.deepEqual(complaints.splice(0), []);
});

test("a change of a waiting request is answered while it is typed, and without script by a button", async () => {
  const id = seen("big").id;
  await visit(`/queue/${id}`);
  const verdict = page.locator("#preview .verdict");
  assert.match(await verdict.innerText(), /Waits in the queue/);
  await previewed("/preview", () => page.fill("#gpu", "2"));
  await until(() => "it starts", async () => /Starts now on GPU/.test(await verdict.innerText()));
  await previewed("/preview", () => page.fill("#gpu", "9"));
  await until(() => "it cannot be saved", async () => /cannot be saved/.test(await verdict.innerText()));
  assert.deepEqual(await violations(page), []);
  assert.equal(seen("big").resources.gpu, 4);
  const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() });
  const other = await plain.newPage();
  await other.goto(`${house.origin}/queue/${id}`);
  await other.fill("#gpu", "2");
  await other.getByRole("button", { name: "Check without saving" }).click();
  assert.match(await other.locator("#preview .verdict").innerText(), /Starts now on GPU/);
  assert.equal(await other.inputValue("#gpu"), "2");
  await plain.close();
  complaints.splice(0);
});

test("a batch job is asked for its command, not called wrong, before anything is typed", async () => {
  await visit("/sessions/new?kind=batch");
  const preview = page.locator("#preview");
  assert.match(await preview.locator(".verdict").innerText(), /^Not ready to launch\nEnter a command/);
  assert.match(await preview.locator(".checks li").first().innerText(), /With a command: Starts now/);
  const button = preview.locator("button[value=launch]");
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  assert.match(await preview.locator("#why-not").innerText(), /^Enter a command/);
  await previewed("/sessions/new/preview", () => page.fill("#command", "true"));
  await until(() => "it can be launched", async () => (await button.getAttribute("aria-disabled")) === null);
  assert.match(await preview.locator(".verdict").innerText(), /^Starts now/);
});

test("a duplicate of what was killed for memory asks for more and says so; a failed end is red", async () => {
  create("kept", "--max-runtime", "1h");
  house.command("session", "create", "host", "--name", "eats", "--cpu", "0.05", "--mem", "32m", "--", "sh", "-c", "head -c 300m /dev/zero | tail");
  await reaches("eats", "ended");
  await visit(address("eats"));
  assert.match(await page.locator(".verdict").innerText(), /out of memory/);
  const dot = page.locator("#timeline li", { hasText: "Ended" }).locator(".n");
  const bad = await page.locator(".verdict svg").evaluate((icon) => getComputedStyle(icon).color);
  assert.equal(await dot.evaluate((dot) => getComputedStyle(dot).borderTopColor), bad);
  assert.equal(await page.locator(".cli").count(), 0, "an ended session has no command lines");
  await page.locator("#verbs").getByRole("link", { name: "Edit and run again" }).click();
  assert.equal(await page.inputValue("#memory"), "64m");
  assert.match(await page.locator("#changed").innerText(), /eats was killed at its memory limit of 32 MiB\. This form asks for 6[0-9.]+ MiB\./);
  await visit("/");
  const event = page.locator("#events li", { hasText: "eats Ended" }).locator(".n");
  assert.equal(await event.evaluate((dot) => getComputedStyle(dot).borderTopColor), bad);
});

test("what was stopped on request shows no exit code of the signal", async () => {
  house.command("run", "-d", "--kind", "interactive", "--cpu", "0.05", "--mem", "32m", "--name", "shell", "host");
  await reaches("shell", "running");
  house.command("session", "stop", "shell");
  await reaches("shell", "ended");
  await visit(address("shell"));
  const told = await page.locator("#console").innerText();
  assert.match(told, /Stopped\s+It was stopped by root\./);
  assert.doesNotMatch(told, /Exit code/);
});

test("the command lines of a running session work, and leave the page when it ends", async () => {
  await visit(address("kept"));
  const lines = await page.locator("#remote [id^=remote-]").allInnerTexts();
  assert.equal(lines[0], `fardel login ${house.origin}`);
  const [program, ...words] = lines[1].split(" ");
  assert.deepEqual([program, words[0]], ["fardel", "exec"]);
  const plain = words.filter((word) => word !== "-it").slice(0, -1);
  assert.equal(house.command(...plain, "--", "echo", "hello").trim(), "hello");
  house.command("session", "kill", "kept");
  await until(() => "the lines go", async () => (await page.locator("#remote .cli").count()) === 0);
});

test("a session of some seconds is under a minute old, and its figures have their place before the first is measured", async () => {
  create("young");
  await reaches("young", "running");
  await visit(address("young"));
  assert.match(await page.locator("#meta").innerText(), /under 1 min/);
  assert.equal(await page.locator("#strips > div").count(), 2);
  assert.match(await page.locator("#strips").innerText(), /of 0\.05 cores/);
  const top = (await page.locator("#console").boundingBox()).y;
  await until(() => "it is measured", async () => /0\.0\d of/.test((await page.locator("#strips").innerText()).replace(/\s+/g, " ")));
  assert.ok(Math.abs((await page.locator("#console").boundingBox()).y - top) <= 2, "what stands below has moved");
  house.command("session", "kill", "young");
  // The list of the next test must not move under its menu.
  await reaches("young", "ended");
});

test("the menu of a row opens at its button, also on a phone and at the end of the page", async () => {
  for (const [width, height] of [[1440, 900], [1440, 420], [390, 700]]) {
    await page.setViewportSize({ width, height });
    await visit("/sessions");
    const buttons = page.locator("td a[data-dialog][href$='/menu']");
    for (const at of [0, (await buttons.count()) - 1]) {
      const button = buttons.nth(at);
      await button.scrollIntoViewIfNeeded();
      await button.click();
      const menu = page.locator("dialog.question[open]");
      await menu.waitFor();
      const [box, from] = [await menu.boundingBox(), await button.boundingBox()];
      assert.ok(box.x >= 0 && box.x + box.width <= width && box.y >= 0 && box.y + box.height <= height, JSON.stringify({ width, box }));
      const beside = Math.min(Math.abs(box.y - (from.y + from.height)), Math.abs(box.y + box.height - from.y));
      const low = box.y + box.height >= height - 12;
      assert.ok(beside <= 8 || low, JSON.stringify({ at, width, box, from }));
      assert.ok(Math.abs(box.x + box.width - (from.x + from.width)) <= 16, JSON.stringify({ box, from }));
      assert.deepEqual(await violations(page), []);
      await page.keyboard.press("Escape");
    }
  }
  await page.setViewportSize({ width: 1280, height: 720 });
});

test("the launch button is in sight on a small screen without hiding a field", async () => {
  for (const [width, height] of [[390, 700], [1000, 700]]) {
    await page.setViewportSize({ width, height });
    await visit("/sessions/new");
    const box = await page.locator("#preview button[value=launch]").boundingBox();
    assert.ok(box.y + box.height <= height, JSON.stringify(box));
    assert.ok((await overflow(page)) <= 0);
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    const last = await page.locator("#cli").boundingBox();
    const now = await page.locator("#preview .go").boundingBox();
    assert.ok(last.y + last.height <= now.y + 1, JSON.stringify({ last, now }));
  }
  await page.setViewportSize({ width: 1280, height: 720 });
});

test("a page stays where it was after Save, and the word about it is in sight", async () => {
  await page.setViewportSize({ width: 1280, height: 420 });
  await visit(address("limited"));
  await page.evaluate(() => { document.querySelector("#rename").showPopover(); scrollTo(0, 300); });
  const before = await page.evaluate(() => scrollY);
  assert.ok(before > 100, `${before}`);
  await page.fill("#new-name", "renamed");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#rename button.pri")]);
  await page.waitForLoadState("load");
  await until(() => "the page is where it was", async () => Math.abs((await page.evaluate(() => scrollY)) - before) < 120);
  const notice = await page.locator(".notice").boundingBox();
  assert.ok(notice.y >= 0 && notice.y < 420, JSON.stringify(notice));
  await page.setViewportSize({ width: 1280, height: 720 });
});

test("the word about a launch leaves once its session has ended, and an old address does not bring it back", async () => {
  create("brief");
  await reaches("brief", "running");
  await visit(`${address("brief")}?notice=launched&of=brief`);
  await page.locator("main > .notice").waitFor();
  house.command("session", "kill", "brief");
  await until(() => "the word goes", async () => (await page.locator("main > .notice").count()) === 0);
  await visit(`${address("brief")}?notice=launched&of=brief`);
  assert.equal(await page.locator("main > .notice").count(), 0);
});

test("a node in maintenance is not called ready", async () => {
  await visit("/");
  const plan = page.locator("#plan");
  assert.match(await plan.innerText(), /· ready/);
  const name = (await plan.innerText()).match(/(\S+) · ready/)[1];
  await page.request.post(`${house.origin}/nodes/${name}/maintenance`, { form: { act: "begin", message: "new disks" }, headers: { origin: house.origin } });
  await until(() => "the plan follows", async () => /· In maintenance/i.test(await plan.innerText()));
  assert.doesNotMatch(await plan.innerText(), /· ready/);
});

test("what a session is for stands in one line under its name, and in full below", async () => {
  const told = "Compares the losses of two runs. ".repeat(15).trim();
  create("told", "--start-at", new Date(Date.now() + 86_400_000).toISOString(), "--description", told);
  for (const [width, height] of [[1440, 900], [390, 844]]) {
    await page.setViewportSize({ width, height });
    await visit(address("told"));
    const line = page.locator(".head h1 + .about");
    assert.equal(await line.innerText(), told);
    const { lines, clipped } = await line.evaluate((line) => ({
      lines: line.getBoundingClientRect().height / parseFloat(getComputedStyle(line).lineHeight),
      clipped: line.scrollWidth > line.clientWidth,
    }));
    assert.ok(lines < 1.5 && clipped, `${lines} lines, clipped: ${clipped}`);
    assert.equal(await page.locator("dl.kv.mono dd", { hasText: told }).count(), 1);
    assert.ok((await overflow(page)) <= 0);
    assert.deepEqual(await violations(page), []);
  }
  await page.setViewportSize({ width: 1280, height: 720 });
  await visit(address("big"));
  assert.equal(await page.locator(".about").count(), 0);
});
