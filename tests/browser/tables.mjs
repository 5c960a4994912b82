// Tables in a real browser: a filter that works while typing and stands in the address, order, columns, pages with
// counts, views, replicas in one row, files of values, and nothing that ends work on one click; with script and without.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { image } from "./lib/archive.mjs";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, signIn, until } from "./lib/house.mjs";

const REPLICAS = 120;

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open();
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
  // All wait: no machine has a thousand cores, and dependencies keep the small ones from starting.
  const later = new Date(Date.now() + 86_400_000).toISOString();
  const run = (name, ...more) => house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", later, "--name", name, ...more, "host", "--", "true");
  run("alpha");
  run("beta", "--label", "team=vision");
  run("train", "--replicas", String(REPLICAS));
});

after(async () => {
  await browser?.close();
  await house?.close();
});

const names = (page) => page.locator("#list a.nm").allInnerTexts();

async function visit(path, options = {}) {
  const context = await browser.newContext({ storageState: state, ...options });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(house.origin + path, { waitUntil: "load" });
  return { context, page, complaints };
}

test("a filter works while it is typed, stands in the address, and the live list keeps to it", async () => {
  const { context, page, complaints } = await visit("/sessions");
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url())));
  await page.fill("#filter [name=q]", "alp");
  await until(() => "the list follows the box", async () => (await names(page)).join() === "alpha");
  assert.match(page.url(), /\?q=alp$/);
  assert.match(await page.locator("#list tbody tr").first().innerText(), /Scheduled to start on/, "a row that waits says for what");
  // The stream was opened again for this filter; what it sends agrees with the box.
  await until(() => `a stream for the filter in ${asked.map((one) => one.search)}`, async () =>
    asked.some((one) => one.pathname === "/sessions/live" && one.searchParams.get("q") === "alp"));
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", new Date(Date.now() + 86_400_000).toISOString(), "--name", "alps", "host", "--", "true");
  await until(() => "what matches comes by itself", async () => (await names(page)).includes("alps"));
  assert.deepEqual((await names(page)).sort(), ["alpha", "alps"]);
  assert.equal(await page.inputValue("#filter [name=q]"), "alp");
  await page.selectOption("#filter [name=state]", "ended");
  await until(() => "the choice filters at once", async () => (await page.locator("#list .empty").count()) === 1);
  assert.match(page.url(), /q=alp&state=ended$/);
  await page.reload();
  assert.equal(await page.inputValue("#filter [name=q]"), "alp");
  assert.deepEqual(complaints, []);
  await context.close();
});

test("a filter that cannot be read says why beside the box and keeps what was typed", async () => {
  const { context, page } = await visit("/sessions?q=colour%3Ared");
  assert.match(await page.locator("#filter-fault").innerText(), /colour/);
  assert.equal(await page.inputValue("#filter [name=q]"), "colour:red");
  assert.deepEqual(await names(page), []);
  assert.deepEqual(await violations(page), []);
  await page.fill("#filter [name=q]", "name:beta");
  await until(() => "the fault goes with its cause", async () => (await page.locator("#filter-fault").count()) === 0);
  assert.deepEqual(await names(page), ["beta"]);
  await context.close();
});

test("replicas of one launch are one row that opens, and pages say where they are", async () => {
  const { context, page } = await visit("/sessions");
  const group = page.locator("tr", { hasText: `train ×${REPLICAS}` });
  assert.equal(await group.count(), 1);
  await group.locator("a.nm").click();
  await page.waitForLoadState("load");
  assert.match(await page.locator(".pager > span").innerText(), /^1–50 of 120$/);
  await page.click(".pager [rel=next]");
  await page.click(".pager [rel=next]");
  assert.match(await page.locator(".pager > span").innerText(), /^101–120 of 120$/);
  assert.equal(await page.locator(".pager [rel=next]").count(), 0);
  await page.click(".pager [rel=prev]");
  assert.match(await page.locator(".pager > span").innerText(), /^51–100 of 120$/);
  await context.close();
});

test("columns sort by links one way and the other, and are hidden and shown", async () => {
  const { context, page } = await visit("/sessions?group=off&q=a");
  await page.click("thead a >> text=Name");
  await page.waitForURL(/sort=name/);
  const up = await names(page);
  assert.deepEqual(up, [...up].sort());
  assert.equal(await page.locator("th[aria-sort=ascending]").count(), 1);
  await page.click("thead a >> text=Name");
  await page.waitForURL(/sort=-name/);
  assert.notDeepEqual(await names(page), up);
  await page.click("[popovertarget=columns]");
  assert.deepEqual(await violations(page), []);
  await page.uncheck("#columns [value=image]");
  await page.check("#columns [value=command]");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#columns .pri")]);
  assert.match(page.url(), /sort=-name/);
  const heads = await page.locator("#list th").allInnerTexts();
  assert.ok(heads.includes("Command") && !heads.includes("Image"), `${heads}`);
  await context.close();
});

test("names of columns stand above their values", async () => {
  const { context, page } = await visit("/sessions?group=off");
  for (const path of ["/sessions?group=off", "/sessions?sort=-created_at", "/users", "/images", "/gpus"]) {
    await page.goto(house.origin + path);
    const off = await page.evaluate(() => {
      const words = (cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell.querySelector("a") ?? cell);
        const texts = [...range.getClientRects()].filter((box) => box.width > 0);
        return { left: Math.min(...texts.map((box) => box.left)), right: Math.max(...texts.map((box) => box.right)) };
      };
      const off = [];
      for (const table of document.querySelectorAll("table.tbl, table.rows")) {
        const row = table.querySelector("tbody tr");
        table.querySelectorAll("thead th.num").forEach((head) => {
          const cell = row?.children[head.cellIndex];
          if (!cell?.textContent.trim() || getComputedStyle(head).display === "none") return;
          const label = head.querySelector("a")?.firstChild ?? head.firstChild;
          const range = document.createRange();
          range.selectNodeContents(label);
          const distance = Math.abs(range.getBoundingClientRect().right - words(cell).right);
          if (distance > 2) off.push(`${location.pathname} ${head.textContent}: ${distance} px`);
        });
      }
      return off;
    });
    assert.deepEqual(off, []);
  }
  await context.close();
});

test("a view is saved with the filter as it stands, and removed", async () => {
  const { context, page } = await visit("/sessions");
  await page.fill("#filter [name=q]", "label:team=vision");
  await until(() => "the list follows", async () => (await names(page)).join() === "beta");
  await page.click("[popovertarget=views]");
  await page.fill("#view-name", "비전 팀");
  await Promise.all([page.waitForEvent("framenavigated"), page.keyboard.press("Enter")]);
  await page.goto(`${house.origin}/sessions`);
  await page.click("[popovertarget=views]");
  assert.deepEqual(await violations(page), []);
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#views a >> text=비전 팀")]);
  assert.deepEqual(await names(page), ["beta"]);
  await page.click("[popovertarget=views]");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#views [name=drop]")]);
  assert.equal(await page.locator("#views >> text=비전 팀").count(), 0);
  await context.close();
});

test("the file of values holds what the filter lets through, with the columns that are shown", async () => {
  const { context, page } = await visit("/sessions?q=train&sort=name");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(".pager [download]")]);
  const lines = readFileSync(await download.path(), "utf8").replace("\ufeff", "").trim().split("\r\n");
  assert.equal(download.suggestedFilename(), "sessions.csv");
  assert.equal(lines.length, 1 + REPLICAS);
  assert.match(lines[0], /^Name,State,.*,Created \(UTC\)$/);
  assert.match(lines[1], /^train-1,.*,\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  await context.close();
});

test("nothing ends on one click: one session, marked ones, a whole launch", async () => {
  const { context, page, complaints } = await visit("/sessions");
  const row = (name) => page.locator("tr", { hasText: name });
  const live = () => house.command("ps", "-o", "name").split("\n").filter(Boolean);
  const before = live().length;
  // The menu of a row, then the question, then no.
  await row("beta").locator("td.act a").click();
  await page.locator("dialog.question[open] .verbs").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question .verbs .dan");
  await page.locator("dialog.question[open] form[action='/sessions/stop']").waitFor();
  assert.match(await page.locator("dialog.question h1").innerText(), /beta/);
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question [data-close]");
  await page.locator("dialog.question[open]").waitFor({ state: "detached" });
  assert.equal(live().length, before, "looking ends nothing");
  // Marks outlive a change of the list; the whole launch counts as many as it is.
  const top = async () => (await row("beta").boundingBox()).y;
  const place = await top();
  await row("beta").locator("input[name=id]").check();
  await page.locator("#marked .dan").waitFor();
  assert.equal(await top(), place, "a mark moves no row");
  const surface = (name) => row(name).evaluate((line) => getComputedStyle(line).backgroundColor);
  await page.mouse.move(0, 0);
  assert.notEqual(await surface("beta"), await surface("alpha"), "a selected row is tinted");
  assert.equal(await page.locator("#marked-count").innerText(), "1 session selected");
  await row(`train ×${REPLICAS}`).locator("input[name=id]").check();
  assert.equal(await page.locator("#marked-count").innerText(), `${REPLICAS + 1} sessions selected`);
  await page.getByRole("button", { name: "Clear selection" }).click();
  await until(() => "nothing is selected", async () => (await page.locator("input[name=id]:checked").count()) === 0);
  assert.equal(await page.locator("#marked").isVisible(), false);
  for (const name of ["beta", `train ×${REPLICAS}`]) await row(name).locator("input[name=id]").check();
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  assert.match(await page.locator("dialog.question h1").innerText(), new RegExp(`${REPLICAS + 1}`));
  await Promise.all([page.waitForEvent("framenavigated"), page.click("dialog.question form button:not([name=force])")]);
  await until(() => `they are gone: ${live().length}`, async () => live().length === before - REPLICAS - 1);
  assert.ok(live().includes("alpha"));
  // None of them ever ran, and the row of all says so as that of one does.
  await page.goto(`${house.origin}/sessions`);
  assert.equal(await row(`train ×${REPLICAS}`).locator(".pill").innerText(), "Cancelled");
  assert.equal(await row("beta").locator(".pill").innerText(), "Cancelled");
  assert.deepEqual(complaints, []);
  await context.close();
});

test("without script the table sorts, filters, pages and asks before it ends anything", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await signIn(page, house);
  await page.goto(`${house.origin}/sessions`);
  await page.fill("#filter [name=q]", "alpha");
  await page.click("#filter button[type=submit]");
  assert.deepEqual(await names(page), ["alpha"]);
  await page.click("thead a >> text=Name");
  assert.match(page.url(), /q=alpha&sort=name/);
  await page.check("input[name=id]");
  await page.click("#marked .dan");
  assert.match(await page.locator("h1").innerText(), /alpha/);
  await page.click("form[action='/sessions/stop'] button:not([name=force])");
  await until(() => "alpha is gone", async () => !house.command("ps", "-o", "name").split("\n").includes("alpha"));
  await context.close();
});

test("images sort and filter, names of one digest count once, and marked ones go after a question", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("importing needs root");
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), "fardel-images-"));
  const small = image(folder, "localhost/small:1", 4096);
  for (const name of ["small:1", "again:1"]) house.command("image", "import", small, "--name", name);
  house.command("image", "import", image(folder, "localhost/large:1", 1 << 20), "--name", "large:1");
  rmSync(folder, { recursive: true });
  const { context, page, complaints } = await visit("/images");
  assert.deepEqual(await names(page), ["host", "again:1", "large:1", "small:1"]);
  assert.match(await page.locator("#summary").innerText(), /^2 images, .* under 3 names$/);
  assert.deepEqual(await violations(page), []);
  await page.click("thead a >> text=Size");
  await page.waitForURL(/sort=-size/);
  assert.equal((await names(page))[0], "large:1");
  await page.fill("#filter [name=q]", "used:no small");
  await until(() => "the list follows the box", async () => (await names(page)).join() === "small:1");
  assert.match(page.url(), /q=used%3Ano%20small&sort=-size$/);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(".pager [download]")]);
  const lines = readFileSync(await download.path(), "utf8").replace("\ufeff", "").trim().split("\r\n");
  assert.equal(lines.length, 2);
  assert.match(lines[1], /^small:1,/);
  await page.fill("#filter [name=q]", "");
  await until(() => "all of them", async () => (await names(page)).length === 4);
  for (const name of ["small:1", "large:1"]) await page.locator("tr", { hasText: name }).locator("input[name=id]").check();
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  assert.match(await page.locator("dialog.question h1").innerText(), /Delete 2 images/);
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question [data-close]");
  assert.equal((await names(page)).length, 4, "looking removes nothing");
  await page.click("#marked .dan");
  await page.locator("dialog.question[open] .named").waitFor();
  await Promise.all([page.waitForEvent("framenavigated"), page.click("dialog.question form button:not([name=force])")]);
  await until(() => "two are gone", async () => (await names(page)).join() === "host,again:1");
  assert.deepEqual(complaints, []);
  await context.close();
});

test("the header of the images follows an import and a removal while the page is open", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("importing needs root");
    return;
  }
  const { context, page, complaints } = await visit("/images");
  const told = async () => Number((await page.locator("#summary").innerText()).match(/^\d+/)?.[0]);
  const before = await told();
  const folder = mkdtempSync(join(tmpdir(), "fardel-images-"));
  house.command("image", "import", image(folder, "localhost/followed:1", 4096), "--name", "followed:1");
  rmSync(folder, { recursive: true });
  await until(() => "the list follows", async () => (await names(page)).includes("followed:1"));
  await until(() => `${before} and one more in the header`, async () => (await told()) === before + 1);
  house.command("image", "rm", "followed:1");
  await until(() => "the list follows again", async () => !(await names(page)).includes("followed:1"));
  await until(() => `${before} in the header`, async () => (await told()) === before);
  assert.deepEqual(complaints, []);
  await context.close();
});

test("back from a session keeps the filter, the address and the list", async () => {
  const { context, page } = await visit("/sessions");
  await page.fill("#filter [name=q]", "train-1");
  await page.selectOption("#filter [name=state]", "ended");
  await until(() => "the list follows", async () => /q=train-1&state=ended$/.test(page.url()) && (await names(page)).length > 0);
  const before = await names(page);
  await Promise.all([page.waitForURL(/q=replicas|\/sessions\/\w/), page.locator("#list a.nm").first().click()]);
  await page.goBack();
  assert.match(page.url(), /q=train-1&state=ended$/);
  assert.equal(await page.inputValue("#filter [name=q]"), "train-1");
  assert.equal(await page.inputValue("#filter [name=state]"), "ended");
  assert.deepEqual(await names(page), before);
  await context.close();
});

test("a date in a table says on a phone what it is the date of", async () => {
  const day = new Date(Date.now() + 9 * 86_400_000).toISOString();
  house.command("allowance", "create", "--project", "default", "--folder-bytes", "80g", "--for", "3d", "--reason", "a paper");
  const api = (method, path, body) => house.command("api", method, path, JSON.stringify(body));
  api("POST", "/users", { name: "jae", password: "another long walk at night 8" });
  api("PUT", "/projects/default/members/jae", { role: "member", expires_at: day });
  api("POST", "/announcements", { text: "Maintenance soon", until: day });
  const { context, page } = await visit("/me", { viewport: { width: 390, height: 844 }, locale: "en-US" });
  await page.fill("#token-name", "nightly");
  await Promise.all([page.waitForEvent("framenavigated"), page.locator("form[action='/me/tokens'] button").click()]);
  const told = [];
  let seen = 0;
  for (const path of ["/me", "/allowances", "/projects/default", "/announcements", "/users", "/images", "/sessions?group=off"]) {
    await page.goto(house.origin + path);
    const dates = await page.evaluate(() => [...document.querySelectorAll("main :is(.rows, .tbl) tbody td")]
      .filter((cell) => cell.checkVisibility() && !cell.matches(":first-child, .first, .why"))
      .filter((cell) => /\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)|\bago$|^\d+ (s|min|h|d)\b/.test(cell.innerText.trim()))
      .map((cell) => [cell.innerText.trim(), getComputedStyle(cell, "::before").content.replace(/^"|\s*"$/g, "")]));
    seen += dates.length;
    told.push(...dates.filter(([, label]) => label === "none" || label === "").map(([date]) => `${path}: ${date}`));
    if ((await overflow(page)) > 0) told.push(`${path} is too wide`);
    told.push(...(await violations(page)).map((line) => `${path}: ${line}`));
  }
  assert.deepEqual(told, []);
  assert.ok(seen >= 6, `only ${seen} dates`);
  await context.close();
});

test("images, events and the queue sort, filter and ask without script as well", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await signIn(page, house);
  await page.goto(`${house.origin}/events`);
  await page.fill("#filter [name=q]", "user:mina");
  await page.click("#filter button[type=submit]");
  assert.match(page.url(), /\/events\?q=user%3Amina$/);
  assert.ok((await page.locator("#list tbody tr").count()) > 0);
  await page.goto(`${house.origin}/events?object=alps&user=mina`);
  assert.match(page.url(), /\/events\?q=object%3Aalps%20user%3Amina$/);
  await page.goto(`${house.origin}/queue`);
  await page.fill("#filter [name=q]", "alps");
  await page.click("#filter button[type=submit]");
  assert.equal(await page.locator("#queue li").count(), 1);
  await page.check("#queue input[name=id]");
  await page.click("#marked .dan");
  assert.match(await page.locator("h1").innerText(), /alps/);
  await page.click("form[action='/queue/cancel'] .dan");
  await until(() => "alps is gone", async () => !house.command("ps", "-o", "name").split("\n").includes("alps"));
  await context.close();
});

test("events on a phone say who did it and why", async () => {
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", new Date(Date.now() + 86_400_000).toISOString(), "--name", "told", "host", "--", "true");
  house.command("session", "stop", "told");
  const { context, page } = await visit("/events?q=told", { viewport: { width: 390, height: 844 } });
  const ended = page.locator("#list tbody tr", { hasText: "session.ended" });
  assert.match(await ended.innerText(), /root/);
  for (const cell of ["td.below:not(.detail)", "td.detail"]) assert.equal(await ended.locator(cell).isVisible(), true, cell);
  // The reason is a sentence, and the state before is no half of a change.
  assert.match(await ended.locator("td.detail").innerText(), /^[A-Z].*\. · before: Waiting$/);
  assert.equal(await overflow(page), 0);
  await context.close();
});

test("the tables fit, in both languages and themes, on a desk and on a phone", async () => {
  const told = [];
  for (const [locale, colorScheme] of [["en-US", "light"], ["ko-KR", "dark"]]) {
    for (const path of ["/sessions?group=off", "/events", "/images", "/queue"]) {
      const { context, page } = await visit(path, { locale, colorScheme });
      for (const width of [1440, 820, 390]) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await overflow(page);
        if (wide > 0) told.push(`${path} ${locale} ${colorScheme} ${width}: ${wide} px too wide`);
        // Beside the form of an import no second button leads to it; below the list one does.
        const ways = await page.locator("a[href='#import']:visible").count();
        if (ways !== (path === "/images" && width < 1181 ? 1 : 0)) told.push(`${path} ${locale} ${width}: ${ways} ways to the import`);
        told.push(...(await violations(page)).map((line) => `${path} ${locale} ${colorScheme} ${width}: ${line}`));
      }
      await context.close();
    }
  }
  assert.deepEqual(told, []);
});
