// The queue in a real browser against the real binary: preview, queue, session page and `fardel why` say the same
// of the same session; requests that wait are changed, held, released and cancelled; a long queue stays small and
// is silent while nothing changes.
//
// Proves too: `every_answer_about_the_queue_is_the_same_answer`

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let context;
let page;
let complaints;

/// A session of the command line's user, the administrator of the machine; one GPU is all there is.
const create = (name, ...words) =>
  house.command("session", "create", "host", "--name", name, "--cpu", "0.05", "--mem", "32m", ...words, "--", "sleep", "600");
const why = (name) => house.command("why", name);
const row = (name) => page.locator("#queue li", { has: page.getByRole("link", { name, exact: true }) });
const running = (name) => until(() => `${name} runs: ${house.command("ps")}`, async () => /running/.test(house.command("session", "get", name)));

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:1");
  context = await browser.newContext();
  page = await context.newPage();
  complaints = listen(page);
  await setUp(page, house);
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("the preview says how many replicas start, and follows the queue while the page is open", async () => {
  await page.goto(`${house.origin}/sessions/new`);
  await page.fill("#cpu", "0.05");
  await page.fill("#memory", "32m");
  await page.fill("#gpu", "0.5");
  await page.fill("#replicas", "3");
  const verdict = page.locator("#preview .verdict");
  await until(
    () => "the preview counts replicas",
    async () => (await verdict.innerText()).includes("2 start now, 1 waits"),
  );
  assert.match(await verdict.innerText(), /The first that waits: .*GPU/);
  // Somebody else takes the whole GPU; nobody touches this page.
  create("holder", "--gpu", "1", "--max-runtime", "2h");
  await until(
    () => "the preview follows the queue",
    async () => (await verdict.innerText()).includes("Waits in the queue"),
  );
  await until(
    () => "the preview says when",
    async () => /Starts by .*, when holder reaches its time limit\./.test(await page.locator("#preview").innerText()),
  );
  assert.match(await page.locator("#preview button[value=launch]").innerText(), /Launch 3 into the queue/);
  assert.deepEqual(complaints.splice(0), []);
});

test("queue, session page and command line give the same reason, and each unknown start its own", async () => {
  await running("holder");
  create("sweep", "--gpu", "0.5", "--replicas", "3");
  create("later", "--gpu", "0.5", "--start-at", "+2h");
  create("behind", "--gpu", "0.5", "--after", "holder");
  await page.goto(`${house.origin}/queue`);
  const first = await row("sweep-1").innerText();
  assert.match(first, /and 2 more replicas, to sweep-3/);
  const starts = first.match(/Starts by (.*), when holder reaches its time limit\./);
  assert.ok(starts, first);
  assert.equal(await row("sweep-1").locator(".pos").innerText(), "1");
  assert.match(why("sweep-1"), /It starts by .*, when holder reaches its time limit\./);
  // What waits for a time or for another session takes no number.
  for (const [name, word, sentence] of [
    ["later", "scheduled", /Scheduled to start on .*\.[\s\S]*If there is no room then, it starts later\./],
    ["behind", "depends", /No start time yet: another session has to end first\./],
  ]) {
    const told = await row(name).innerText();
    assert.match(told, sentence);
    assert.ok(told.includes(word), told);
    assert.equal(await row(name).locator(".pos").innerText(), "–");
  }
  assert.match(why("later"), /It starts at .*, or later if there is no room then\./);
  assert.match(why("behind"), /No start time yet: another session has to end first\./);
  assert.match(await page.locator("#shown").innerText(), /5 sessions/);
  const plan = await page.locator("#plan table").innerText();
  assert.match(plan, /holder[\s\S]*time limit/);
  assert.match(plan, /sweep-1[\s\S]*after holder/);
  const cut = await page.locator("#plan tbody th").evaluateAll((all) => all.filter((name) => name.scrollWidth > name.clientWidth).map((name) => name.textContent));
  assert.deepEqual(cut, [], "names of the plan are cut");
  await page.goto(`${house.origin}${await page.getByRole("link", { name: "sweep-1", exact: true }).first().getAttribute("href")}`);
  assert.ok((await page.locator("main").innerText()).includes(starts[0]), "the session's page says the same");
  // A limit that is missing is named as the cause.
  create("open-end", "--gpu", "1");
  house.command("session", "kill", "holder");
  await until(
    () => `sweep starts: ${house.command("ps")}`,
    async () => /running/.test(house.command("session", "get", "sweep-2")),
  );
  await page.goto(`${house.origin}/queue`);
  assert.match(await row("open-end").innerText(), /No start time yet: no running session has a time limit\./);
  assert.match(why("open-end"), /No start time yet: no running session has a time limit\./);
  assert.deepEqual(complaints.splice(0), []);
});

test("a waiting request is changed in place, and what is wrong stands at its field", async () => {
  await page.goto(`${house.origin}/queue`);
  await row("open-end").getByRole("link", { name: "Change open-end" }).click();
  assert.deepEqual(await violations(page), []);
  await page.fill("#cpu", "banana");
  await page.getByRole("button", { name: "Save the request" }).click();
  assert.equal(await page.locator("[data-fault=cpu]").count(), 1);
  assert.equal(await page.inputValue("#cpu"), "banana");
  complaints.splice(0); // The browser's own line about the status 422.
  await page.reload();
  await page.goto(page.url().replace(/\/change$/, ""));
  await page.fill("#priority", "101");
  await page.getByRole("button", { name: "Save the request" }).click();
  assert.equal(await page.locator("[data-fault=priority]").count(), 1);
  assert.equal(await page.inputValue("#priority"), "101");
  complaints.splice(0);
  await page.goto(page.url().replace(/\/change$/, ""));
  assert.equal(await page.inputValue("#priority"), "10");
  await page.fill("#max_runtime", "30m");
  await page.fill("#priority", "5");
  await page.getByRole("button", { name: "Save the request" }).click();
  await page.waitForURL((url) => url.pathname === "/queue");
  assert.match(house.command("session", "get", "open-end", "-o", "json"), /"max_runtime_seconds": ?1800/);
  assert.match(await row("open-end").innerText(), /priority 5/);
  house.command("session", "set", "open-end", "--priority", "10");
  await page.goto(`${house.origin}/queue`);
  assert.doesNotMatch(await row("open-end").innerText(), /priority/);
});

test("a session is held, has no number meanwhile, and is released", async () => {
  create("next", "--gpu", "1");
  await page.goto(`${house.origin}/queue`);
  // Behind sweep-3.
  assert.equal(await row("open-end").locator(".pos").innerText(), "2");
  assert.equal(await row("sweep-3").locator(".pill").innerText(), "next");
  assert.equal(await row("open-end").locator(".pill").innerText(), "waiting");
  await row("open-end").getByRole("link", { name: "Change open-end" }).click();
  await page.getByRole("button", { name: "Put on hold" }).click();
  await page.waitForURL((url) => url.pathname === "/queue");
  assert.match(await row("open-end").innerText(), /on hold[\s\S]*put it on hold[\s\S]*No start time yet: it is on hold\./);
  assert.equal(await row("open-end").locator(".pos").innerText(), "–");
  assert.equal(await row("next").locator(".pos").innerText(), "2");
  house.command("session", "release", "open-end");
  await until(
    () => "the page follows the release",
    async () => (await row("open-end").locator(".pos").innerText()) === "3",
  );
  house.command("session", "hold", "next");
  assert.match(why("next"), /put it on hold; it starts after its release\./);
  house.command("session", "release", "next");
});

test("nothing is cancelled by one click, and a smaller request that fits is one click away", async () => {
  house.command("session", "kill", "sweep-1");
  // Half a GPU is free, and sweep-3 takes it; then sweep-2 ends and half is free for whoever asks for less.
  await until(() => "sweep-3 starts", async () => /running/.test(house.command("session", "get", "sweep-3")));
  await page.goto(`${house.origin}/queue`);
  await row("next").getByRole("link", { name: "Change next" }).click();
  assert.equal(await page.getByRole("button", { name: "Cancel the session" }).isVisible(), false);
  await page.getByText("Cancel next", { exact: true }).click();
  await page.getByRole("button", { name: "Cancel the session" }).click();
  await page.waitForURL((url) => url.pathname === "/queue");
  assert.equal(await row("next").count(), 0);
  house.command("session", "kill", "sweep-2");
  await until(
    () => "the offer appears",
    async () => (await row("open-end").getByRole("button", { name: /Start now with 0\.5 GPU/ }).count()) === 1,
  );
  // The offer takes no room from the reason.
  const room = await row("open-end").first().evaluate((line) => line.querySelector(".why").getBoundingClientRect().width / line.getBoundingClientRect().width);
  assert.ok(room > 0.85, `the reason has ${Math.round(room * 100)}% of its row`);
  await row("open-end").getByRole("button", { name: /Start now with 0\.5 GPU/ }).click();
  // One lands on the page of the session that starts.
  await page.waitForURL(/\/sessions\/[0-9a-f-]+/);
  await running("open-end");
  complaints.splice(0);
});

test("a session that backfill would start with a time limit gets it by one click", async () => {
  for (const name of ["sweep-3", "open-end"]) house.command("session", "kill", name);
  house.command("fair-share", "order", "--backfill", "timed");
  create("hour", "--gpu", "0.5", "--max-runtime", "1h");
  await running("hour");
  create("front", "--gpu", "1");
  create("small", "--gpu", "0.5");
  await page.goto(`${house.origin}/queue`);
  const start = row("small").getByRole("button", { name: /Start now with a time limit of 5\d min/ });
  await start.waitFor();
  assert.match(why("small"), /--max-runtime 5\dm starts it now/);
  await start.click();
  await running("small");
  const small = JSON.parse(house.command("session", "get", "small", "-o", "json"));
  assert.equal(small.resources.gpu, 0.5, "its share stays");
  assert.ok(small.max_runtime_seconds < 3600, `it has a limit: ${small.max_runtime_seconds}`);
  house.command("fair-share", "order", "--backfill", "strict");
  for (const name of ["front", "small", "hour"]) house.command("session", "kill", name);
  create("keep", "--gpu", "0.5", "--replicas", "2");
  await running("keep-2");
  complaints.splice(0);
});

test("a user who waits for others is told so without their names", async () => {
  for (let n = 0; n < 3; n++) create(`secret${n}`, "--gpu", "1");
  const folder = mkdtempSync(join(tmpdir(), "fardel-queue-"));
  const file = join(folder, "password");
  writeFileSync(file, "eight quiet rivers 9\n", { mode: 0o600 });
  house.command("user", "add", "jae", "--password-file", file);
  rmSync(folder, { recursive: true });
  const other = await browser.newContext();
  const own = await other.newPage();
  await own.goto(`${house.origin}/login`);
  await own.fill("#name", "jae");
  await own.fill("#password", "eight quiet rivers 9");
  await own.click("form[action='/login'] button[type=submit]");
  await own.waitForURL((url) => url.pathname !== "/login");
  await own.goto(`${house.origin}/queue`);
  const told = await own.locator("#queue").innerText();
  assert.match(told, /None of your sessions waits/);
  // The administrator sees them all.
  await page.goto(`${house.origin}/queue`);
  const all = Number.parseInt(await page.locator("#shown").innerText(), 10);
  assert.ok(all >= 3 && told.includes(`${all} sessions of other users wait.`), `${all}: ${told}`);
  assert.ok(!(await own.content()).includes("secret"), "a name of another user");
  await own.goto(`${house.origin}/`);
  assert.match(await own.locator("#waiting").innerText(), /No session of yours waits/);
  assert.match(await own.locator("#kpis").innerText(), /only yours are counted/);
  await other.close();
});

test("two hundred waiting stand on small pages that are silent at rest", async () => {
  for (let n = 0; n < 55; n++) create(`many${n}`, "--gpu", "1", "--replicas", "4");
  await page.goto(`${house.origin}/queue`);
  assert.match(await page.locator("#shown").innerText(), /\d+ of 2\d\d sessions/);
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 900 });
    assert.equal(await overflow(page), 0, `at ${width}`);
  }
  assert.deepEqual(await violations(page), []);
  assert.match(await page.locator(".pager > span").innerText(), /^Launches 1–15 of 5\d$/);
  await page.click(".pager [rel=next]");
  assert.match(page.url(), /page=2/);
  const cookie = (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
  const size = await new Promise((done, fail) =>
    get(`${house.origin}/queue`, { headers: { cookie, "accept-encoding": "gzip" } }, (answer) => {
      let bytes = 0;
      answer.on("data", (part) => (bytes += part.length)).on("end", () => done(bytes));
    }).on("error", fail),
  );
  console.log(`queue of 200: ${size} bytes`);
  assert.ok(size <= 15 << 10, `${size} bytes`);
  // The first message is the whole state; what follows within ten seconds is all there is at rest.
  const rest = await new Promise((done, fail) => {
    let bytes = 0;
    let first = true;
    const stream = get(`${house.origin}/queue/live?page=1`, { headers: { cookie } }, (answer) => {
      answer.on("data", (part) => {
        if (first) setTimeout(() => (stream.destroy(), done(bytes)), 10_000);
        else bytes += part.length;
        first = false;
      });
    }).on("error", (error) => (first ? fail(error) : undefined));
  });
  console.log(`stream at rest: ${rest} bytes in 10 s`);
  assert.ok(rest <= 10 << 10, `${rest} bytes in 10 s`);
});

test("the overview says how many wait beyond those that it shows", async () => {
  await page.goto(`${house.origin}/queue`);
  const all = (await page.locator("#shown").innerText()).match(/of (\d+) sessions/)[1];
  await page.goto(`${house.origin}/`);
  const rows = await page.locator("#waiting li").count();
  assert.ok(rows > 0 && rows < Number(all), `${rows} of ${all}`);
  const [, shown, sum] = (await page.locator("#waiting .foot a[href='/queue']").innerText()).match(/^(\d+) of (\d+) sessions$/);
  assert.equal(sum, all);
  assert.ok(Number(shown) >= rows && Number(shown) < Number(all), `${shown} in ${rows} rows`);
});

test("the queue is filtered while one types, leaves as a file, and many are cancelled after a question", async () => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(`${house.origin}/queue`);
  const rows = page.locator("#queue li");
  await page.fill("#filter [name=q]", "many7");
  await until(() => "one launch", async () => (await rows.count()) === 1);
  assert.match(page.url(), /\?q=many7$/);
  await page.selectOption("#filter [name=why]", "held");
  await until(() => "none is held", async () => (await rows.count()) === 0);
  house.command("session", "hold", "many7-1");
  await until(() => "what is held comes by itself", async () => (await rows.count()) === 1);
  house.command("session", "release", "many7-1");
  await page.goto(`${house.origin}/queue?q=many1`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(".pager [download]")]);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\r\n");
  // many1 and many10 to many19, a line for each launch.
  assert.equal(lines.length, 1 + 11);
  assert.match(lines[0], /Position,Name,Sessions,User,Image,/);
  await page.goto(`${house.origin}/queue?q=many2`);
  const all = await rows.count();
  await rows.nth(0).locator("input[name=id]").check();
  await rows.nth(1).locator("input[name=id]").check();
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  assert.match(await page.locator("dialog.question h1").innerText(), /Cancel 8 waiting sessions/);
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question [data-close]");
  assert.equal(await rows.count(), all, "looking cancels nothing");
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  await Promise.all([page.waitForEvent("framenavigated"), page.click("dialog.question .dan")]);
  await page.goto(`${house.origin}/queue?q=many2`);
  await until(() => "two launches less", async () => (await rows.count()) === all - 2);
});

test("a long name is no wider than a phone", async () => {
  create("session-of-a-model-with-quite-a-long-name-and-a-number-behind-1", "--gpu", "1");
  await page.setViewportSize({ width: 360, height: 780 });
  await page.goto(`${house.origin}/queue?q=session-of`);
  await page.locator("#queue li").first().waitFor();
  assert.equal(await overflow(page), 0);
});
