// What an administrator looks at every day, in a real browser against the real binary: what needs attention, events,
// notices, settings, a node and its maintenance. Each page without a violation, in both languages and themes.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { image } from "./lib/archive.mjs";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let folder;
let state;
let node;
const config = () => join(folder, "fardel.toml");

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-system-"));
  writeFileSync(config(), "# kept\nbackup_keep = 3 # three\n");
  browser = await launch();
  house = await openWith({ FARDEL_CONFIG: config() }, "--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

async function nodeName(page) {
  await page.goto(`${house.origin}/`);
  const title = page.locator("#plan .numa").last();
  await until(() => "a node reports", async () => (await title.count()) > 0);
  return (await title.textContent()).split(" ")[0].trim();
}

test("overview, menu, checks and report count the same; a plain user sees none of it", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  node = await nodeName(page);
  house.command("gpu", "cordon", "0", "--note", "new fan");
  const badge = page.locator(".nav [data-count='3']");
  await page.goto(`${house.origin}/system/checks`);
  const shown = await page.locator("main ul.looks").first().locator("> li:not(details li)").count();
  const words = await page.locator("main").textContent();
  assert.match(words, /GPU 0 of/);
  assert.match(words, /Cordoned: new fan/);
  const told = await page.locator(".head p").textContent();
  const [, warnings, failed] = told.match(/(\d+) warnings, (\d+) failed/).map(Number);
  assert.equal(shown, warnings + failed, told);
  assert.equal(Number(await badge.textContent()), shown, "the menu's badge");
  await page.goto(`${house.origin}/`);
  assert.equal(Number(await badge.textContent()), shown, "the badge on the overview");
  const rows = await page.locator("#attention li").count();
  const more = (await page.locator("#attention").textContent()).match(/(\d+) more/);
  const open = (await page.locator("#attention a[href^='/setup/']").count()) > 0 ? 1 : 0;
  assert.equal(more ? rows - 1 + Number(more[1]) - open : rows - open, shown, "the overview's list");
  assert.ok(more || (await page.locator("#attention").textContent()).includes("new fan"));
  assert.equal(await page.locator("#attention a", { hasText: /^Open$/ }).count(), 0, "each link says where it leads");
  await page.goto(`${house.origin}/setup/report`);
  assert.match(await page.locator("main").textContent(), /Cordoned: new fan/);
  assert.equal(await page.locator("main li svg.warn, main li svg.bad").count(), shown, "the report");

  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  house.command("user", "add", "jae", "--password-file", password);
  const invited = await browser.newContext({ locale: "en-US" });
  const user = await invited.newPage();
  await user.goto(`${house.origin}/login`);
  await user.fill("#name", "jae");
  await user.fill("#password", PERSON.password);
  await Promise.all([user.waitForURL(`${house.origin}/`), user.click("form[action='/login'] button[type=submit]")]);
  assert.equal(await user.locator("#attention li").count(), 0, "the administrator's warnings are not for users");
  assert.equal(await user.locator(".nav [data-count='3']").count(), 0, "nor is their number");
  assert.equal((await user.goto(`${house.origin}/nodes/${node}`)).status(), 403);
  await invited.close();
  await context.close();
});

test("checks of the last minute are shown with their age, and a button makes new ones", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  const made = async () => (await page.locator(".head p").innerText()).match(/checked at (\d\d:\d\d:\d\d), (just now|\d+ s ago)$/)?.[1];
  await page.goto(`${house.origin}/system/checks`);
  const first = await made();
  assert.ok(first, await page.locator(".head p").innerText());
  await page.reload();
  assert.equal(await made(), first, "no new diagnosis");
  for (let n = 0; n < 10; n += 1) {
    const answer = await context.request.get(`${house.origin}/system/checks`);
    assert.equal(answer.status(), 200);
    assert.ok((await answer.text()).includes(first), "no new diagnosis for ten visits");
  }
  // What a form of the console mends leads to the form.
  const backups = page.locator("main ul.looks > li", { hasText: "No scheduled backups are set up" });
  assert.equal(await backups.locator("a.btn").getAttribute("href"), "/system/backups");
  // These GPUs are simulated, and no check says that there is none.
  await page.locator("summary", { hasText: /passed/ }).click();
  assert.ok((await page.locator("details.fold h2.grp").count()) > 1, "what passed stands in groups");
  const passed = await page.locator("details.fold ul.looks").allInnerTexts();
  assert.match(passed.join(" "), /The GPUs are simulated: H100:2/);
  assert.doesNotMatch(passed.join(" "), /No GPU/);
  await page.waitForTimeout(1100);
  await Promise.all([page.waitForEvent("framenavigated"), page.click("form[action='/system/checks'] button")]);
  assert.equal(page.url(), `${house.origin}/system/checks`);
  assert.notEqual(await made(), first);
  await context.close();
});

test("Korean checks and settings hold no English sentence", async () => {
  const context = await signedIn({ locale: "ko-KR" });
  const page = await context.newPage();
  for (const path of ["/system/checks", "/system/settings"]) {
    await page.goto(house.origin + path);
    assert.equal(await page.locator("main [lang=en]").count(), 0, `${path} holds English`);
    for (const words of await page.locator("main li p:not(.mono):not(.cmd)").allTextContents()) {
      if (words.trim() && !/^[\w.:/ -]+$/.test(words)) assert.match(words, /[가-힣]/, `${path}: ${words}`);
    }
  }
  await context.close();
});

test("each part of the system page is called as its tab, in both languages", async () => {
  for (const locale of ["en-US", "ko-KR"]) {
    const context = await signedIn({ locale });
    const page = await context.newPage();
    const titles = new Set();
    for (const part of ["checks", "settings", "backups", "support", "tls"]) {
      await page.goto(`${house.origin}/system/${part}`);
      const tab = (await page.locator(".tabs a[aria-current]").innerText()).trim();
      assert.equal((await page.locator("h1").innerText()).trim(), tab, part);
      assert.ok((await page.title()).startsWith(`${tab} · `), await page.title());
      titles.add(tab);
    }
    assert.equal(titles.size, 5, [...titles].join(", "));
    await context.close();
  }
});

test("a refused setting stays in its field; a good one is in force, written and undone", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/system/settings?q=backup_keep`);
  const row = page.locator("#backup_keep");
  const change = async (value) => {
    await row.locator("summary").click();
    await row.locator("input[name=value]").fill(value);
    await Promise.all([page.waitForNavigation(), row.locator("button.pri").click()]);
  };
  await change("none");
  assert.equal(await row.locator("input[name=value]").inputValue(), "none");
  assert.match(await row.locator(".fault").textContent(), /whole number/);
  assert.equal(await page.evaluate(() => document.activeElement?.id), "v-backup_keep");
  assert.equal(readFileSync(config(), "utf8"), "# kept\nbackup_keep = 3 # three\n");
  await page.goto(`${house.origin}/system/settings`);
  await change("9");
  assert.match(await row.locator(".said").textContent(), /Number of backups kept was changed/);
  assert.match(await row.locator(".is").textContent(), /9/);
  assert.equal(readFileSync(config(), "utf8"), "# kept\nbackup_keep = 9 # three\n");
  assert.match(await row.locator(".do").innerText(), /Undo the last change\s+Back to 3; possible until the next change/);
  await Promise.all([page.waitForNavigation(), row.locator("button[value=undo]").click()]);
  assert.equal(readFileSync(config(), "utf8"), "# kept\nbackup_keep = 3 # three\n");
  await page.goto(`${house.origin}/system/settings?changed=1`);
  const keys = await page.locator(".sets > li > .what > .named").allTextContents();
  assert.ok(keys.includes("backup_keep") && !keys.includes("keep_days"), keys.join(" "));
  assert.equal(await page.locator("#listen summary").count(), 0, "addresses stay with the file");
  await context.close();
});

test("a setting is called in words, and needs a restart only once it was changed", async () => {
  for (const [locale, name, property, badge] of [
    ["en-US", "Units of one GPU", /takes effect after a restart/, /needs a restart/],
    ["ko-KR", "GPU 한 장의 단위 수", /다시 시작한 뒤 적용됨/, /다시 시작 필요/],
  ]) {
    const context = await signedIn({ locale });
    const page = await context.newPage();
    await page.goto(`${house.origin}/system/settings?q=gpu_units`);
    const row = page.locator("#gpu_units");
    assert.equal(await row.locator(".what > b").innerText(), name);
    assert.equal(await row.locator(".what > .named").innerText(), "gpu_units");
    assert.match(await row.locator(".what").innerText(), property);
    assert.equal(await page.locator(".sets .pill").count(), 0, "nothing was changed");
    await row.locator("summary").click();
    await row.locator("input[name=value]").fill("10");
    await Promise.all([page.waitForNavigation(), row.locator("button.pri").click()]);
    assert.match(await row.locator(".pill").innerText(), badge);
    assert.doesNotMatch(await row.locator(".what").innerText(), property);
    await Promise.all([page.waitForNavigation(), row.locator("button[value=undo]").click()]);
    assert.equal(await row.locator(".pill").count(), 0);
    await context.close();
  }
});

test("maintenance stops new sessions and says why on launch, queue and node until it ends", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/`);
  await page.locator(".nav a[href='/nodes']").click();
  await page.waitForURL(`${house.origin}/nodes/${node}`);
  await page.fill("#message", "New disks until 18:00.");
  await Promise.all([page.waitForNavigation(), page.click("button[value=begin]")]);
  assert.match(await page.locator("#state").textContent(), /New disks until 18:00/);
  for (const path of ["/", "/sessions/new", "/queue"]) {
    await page.goto(house.origin + path);
    assert.match(await page.locator("main .banner").first().textContent(), /in maintenance.*New disks until 18:00\./s, path);
  }
  // jae is no administrator.
  const invited = await browser.newContext({ locale: "en-US" });
  const user = await invited.newPage();
  await user.goto(`${house.origin}/login`);
  await user.fill("#name", "jae");
  await user.fill("#password", PERSON.password);
  await Promise.all([user.waitForURL(`${house.origin}/`), user.click("form[action='/login'] button[type=submit]")]);
  assert.match(await user.locator("main .banner").first().textContent(), /in maintenance.*New disks until 18:00\./s);
  // Who has a session that waits for it is told by the bell as well; no other user is.
  const list = user.locator("#list");
  await user.goto(`${house.origin}/notices`);
  assert.doesNotMatch(await list.textContent(), /maintenance/);
  const form = { name: "of-jae", image: "host", kind: "batch", command: "true", cpu: "0.1", memory: "0.1" };
  const sent = await invited.request.post(`${house.origin}/sessions/new`, { form, headers: { origin: house.origin }, maxRedirects: 0 });
  assert.equal(sent.status(), 303, await sent.text());
  await until(() => "the notice comes by itself", async () =>
    /is in maintenance since \d\d:\d\d and takes no new sessions[\s\S]*New disks until 18:00\. · 1 session of yours waits/.test(await list.textContent()));
  assert.equal(await list.locator("a", { hasText: node }).count(), 0, "a plain user has no page of the node");
  assert.deepEqual(await violations(user), []);
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", "waits", "host", "--", "true");
  const why = () => house.command("why", "waits");
  await until(why, async () => why().includes("New disks until 18:00."));
  await page.goto(`${house.origin}/queue`);
  assert.match(await page.locator("#queue .why").first().textContent(), /maintenance.*New disks/s);
  await page.goto(`${house.origin}/nodes/${node}`);
  await Promise.all([page.waitForNavigation(), page.click("button[value=end]")]);
  await until(() => "the notice goes with its cause", async () => !/maintenance/.test(await list.textContent()));
  await invited.close();
  await page.goto(`${house.origin}/sessions/new`);
  assert.doesNotMatch(await page.locator("main").textContent(), /maintenance/);
  await context.close();
});

test("the bell counts what happened to own sessions until it is read", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/notices`);
  const bell = page.locator(".bell .n");
  assert.equal(await bell.isVisible(), false, "nothing happened yet");
  const form = { name: "mine", image: "host", kind: "batch", command: "true", cpu: "0.1", memory: "0.1" };
  const sent = await context.request.post(`${house.origin}/sessions/new`, { form, headers: { origin: house.origin }, maxRedirects: 0 });
  assert.equal(sent.status(), 303, await sent.text());
  const list = page.locator("#list");
  await until(() => "the list says how it ended", async () => /mine\s+(finished|failed)/.test(await list.textContent()));
  await until(() => "the bell counts", async () => Number(await bell.textContent()) > 0 && (await bell.isVisible()));
  await Promise.all([page.waitForNavigation(), list.locator("button").click()]);
  assert.equal(await bell.isVisible(), false, "read");
  assert.equal(await list.locator(".new").count(), 0);
  assert.match(await list.textContent(), /mine/);
  await context.close();
});

test("events are filtered by the address, follow the server, and leave as a file", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/events`);
  await page.selectOption("select[name=kind]", "gpus");
  await until(() => `the address follows: ${page.url()}`, async () => /kind=gpus/.test(page.url()));
  const rows = page.locator("#list tbody tr");
  const before = await rows.count();
  assert.ok(before > 0);
  // Words filter while they are typed.
  await page.fill("#filter [name=q]", "cordoned user:nobody");
  await until(() => "nothing matches", async () => (await rows.count()) === 0);
  await page.fill("#filter [name=q]", "since:yesterday");
  await until(() => "a time that cannot be read", async () => (await page.locator("#filter-fault").count()) === 1);
  await page.fill("#filter [name=q]", "since:1d");
  await until(() => "all of the day", async () => (await rows.count()) === before);
  assert.match(page.url(), /q=since%3A1d&kind=gpus$/);
  house.command("gpu", "uncordon", "0");
  await until(() => "the row arrives", async () => (await rows.count()) === before + 1);
  assert.match(await rows.first().textContent(), /gpu\./);
  assert.equal(await page.inputValue("#filter [name=q]"), "since:1d");
  const link = await page.locator("a[href^='/events.csv']").getAttribute("href");
  assert.match(link, /kind=gpus/);
  const file = await context.request.get(house.origin + link);
  assert.equal(file.headers()["content-type"], "text/csv; charset=utf-8");
  const lines = (await file.text()).trim().split("\r\n");
  assert.equal(lines.length, before + 2);
  assert.match(lines[0], /^\ufeff?Time \(UTC\),Event,Object,User,/);
  assert.match(lines[1], /^\d{4}-\d\d-\d\dT/);
  await context.close();
});

test("an import that is refused says why in the server's words", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/images`);
  await page.setInputFiles("input[type=file]", image(folder, "x:1", 4096));
  await page.fill("form[data-upload] [name=name]", "host");
  await page.click("form[data-upload] button");
  const words = page.locator("form[data-upload] .fault");
  await words.waitFor();
  assert.match(await words.textContent(), /host/);
  assert.doesNotMatch(await words.textContent(), /HTTP \d/);
  await context.close();
});

test("a failed import is called by its file, says why, and is cleared from the list", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("importing needs root");
    return;
  }
  const context = await signedIn();
  const page = await context.newPage();
  const broken = join(folder, "broken.tar");
  writeFileSync(broken, "no archive ".repeat(400));
  await page.goto(`${house.origin}/images`);
  await page.setInputFiles("input[type=file]", broken);
  await page.click("form[data-upload] button");
  const row = page.locator("#jobs li", { hasText: "broken.tar" });
  await until(() => "it failed", async () => (await row.count()) === 1 && /failed/i.test(await row.innerText()));
  assert.ok((await row.locator(".help").innerText()).length > 12, "it says why");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#jobs form button")]);
  assert.equal(await row.count(), 0);
  // Neither the stream nor a reload brings it back.
  await page.waitForTimeout(2_500);
  await page.reload();
  assert.equal(await row.count(), 0);
  await context.close();
});

test("each code of a problem has the page that its answer links", async () => {
  const context = await signedIn();
  const answer = await context.request.get(`${house.origin}/api/v1/sessions/nothing`);
  const problem = await answer.json();
  const page = await context.newPage();
  const shown = await page.goto(house.origin + problem.help);
  assert.equal(shown.status(), 200);
  assert.equal((await page.locator("h1").textContent()).trim(), problem.code);
  await context.close();
});

for (const path of ["/events", "/notices", "/system/settings", "/system/checks", "NODE", "/docs/errors/session-unknown"]) {
  test(`${path} is accessible, obeys the policy and fits, in both languages and themes`, async () => {
    const told = [];
    const place = path === "NODE" ? `/nodes/${node}` : path;
    for (const [locale, colorScheme] of [["en-US", "light"], ["ko-KR", "dark"]]) {
      const context = await signedIn({ locale, colorScheme });
      const page = await context.newPage();
      const complaints = listen(page);
      await page.goto(house.origin + place, { waitUntil: "load" });
      for (const width of [1440, 390]) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await overflow(page);
        if (wide > 0) told.push(`${locale} ${width} px: ${wide} px too wide`);
        told.push(...(await violations(page)).map((line) => `${locale} ${width} px: ${line}`));
      }
      if (path !== "/docs/errors/session-unknown") told.push(...complaints);
      await context.close();
    }
    assert.deepEqual(told, []);
  });
}

test("events, notices, settings and node work without script", async () => {
  const context = await signedIn({ javaScriptEnabled: false });
  const page = await context.newPage();
  for (const path of ["/events?kind=users&q=added", "/notices", "/system/settings?changed=1", `/nodes/${node}`, "/system/checks"]) {
    const answer = await page.goto(house.origin + path);
    assert.equal(answer.status(), 200, path);
  }
  await page.goto(`${house.origin}/system/settings`);
  await page.locator("#backup_keep summary").click();
  await page.fill("#v-backup_keep", "0");
  await page.click("#backup_keep button.pri");
  assert.equal(await page.inputValue("#v-backup_keep"), "0");
  assert.equal(await page.locator("#backup_keep .fault").count(), 1);
  await context.close();
});
