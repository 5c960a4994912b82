// An administrator's tasks with the pages alone: back up, change a setting, look at a user, find a card's use of last
// week, stop what holds a GPU; and refusals of imports and certificates at their fields, in both languages and without
// script.
//
// Promise (Installation and console): Everyday tasks need no file and no command line.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { image } from "./lib/archive.mjs";
import { focusGiven, launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp, until } from "./lib/house.mjs";

const SECRET = "four random words here";

let browser;
let house;
let folder;
let state;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-administration-"));
  browser = await launch();
  house = await openWith({ FARDEL_CONFIG: join(folder, "fardel.toml") }, "--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  house.command("user", "add", "jae", "--password-file", password);
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

/// What is wrong about a refused field, in words; empty when its fault stands there, has the focus and keeps the value.
const faulty = async (page, field, value) => {
  await focusGiven(page);
  return page.evaluate(([field, value]) => {
    const control = document.querySelector(`[name="${field}"][aria-invalid=true]`);
    if (!control) return [`${field} is not marked: ${document.querySelector("main")?.innerText.slice(0, 200)}`];
    const told = [];
    if (value !== null && control.value !== value) told.push(`${field} holds ${control.value}`);
    if (document.activeElement !== control) told.push(`the focus is at ${document.activeElement.outerHTML.slice(0, 80)}`);
    const note = document.getElementById((control.getAttribute("aria-describedby") ?? "").split(" ")[0]);
    if (!note?.getBoundingClientRect().height || note.textContent.trim().length < 6) told.push(`${field}: no sentence`);
    return told;
  }, [field, value]);
};

const sentence = (page, field) => page.locator(`#fault-${field}`).innerText();

/// Sends the form that an action names, past the browser's own checks.
async function send(page, action) {
  const button = page.locator(`form[action='${action}'] button.btn`).first();
  await Promise.all([page.waitForEvent("framenavigated"), button.click()]);
  await page.waitForLoadState("load");
}

for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["en-US", false]]) {
  test(`a wrong backup schedule stands at its field, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await signedIn({ locale, javaScriptEnabled: script });
    const page = await context.newPage();
    const good = { directory: join(folder, "disk", "backups"), every_hours: "24", keep: "7", passphrase: SECRET, again: SECRET };
    for (const [field, typed] of [["directory", "/etc"], ["directory", "backups"], ["every_hours", "often"], ["keep", "0"], ["passphrase", "short"], ["again", "other words than those"]]) {
      await page.goto(`${house.origin}/system/backups`);
      const form = { ...good, [field]: typed };
      if (field === "passphrase") form.again = typed;
      for (const [name, value] of Object.entries(form)) await page.fill(`.schedule [name=${name}]`, value);
      await send(page, "/system/backups/schedule");
      const secret = field === "passphrase" || field === "again";
      if (script) assert.deepEqual(await faulty(page, field, secret ? "" : typed), [], `${field}=${typed}`);
      else assert.equal(await page.locator(`.schedule [name=${field}][aria-invalid=true]`).count(), 1);
      assert.equal(await page.inputValue(".schedule [name=directory]"), form.directory, "what was typed stays");
      assert.match(await sentence(page, field), locale === "ko-KR" ? /[가-힣]/ : /[a-z]{3}/);
    }
    if (script) assert.deepEqual(await violations(page), []);
    await context.close();
  });
}

test("one backup is made before a schedule exists, and a schedule is turned off, by the page alone", async () => {
  const file = join(folder, "own.toml");
  const own = await openWith({ FARDEL_CONFIG: file });
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  const words = () => page.locator("main").innerText();
  try {
    await setUp(page, own);
    const once = async (passphrase, place) => {
      await page.goto(`${own.origin}/system/backups`);
      await page.fill("[name=directory]", join(folder, "own-backups"));
      await page.fill("[name=passphrase]", passphrase);
      await page.fill("[name=again]", passphrase);
      await Promise.all([page.waitForURL(place), page.click(".schedule button[value=once]")]);
    };
    await once("short", /backups\/schedule$/);
    assert.deepEqual(await faulty(page, "passphrase", ""), []);
    await once(SECRET, /notice=backup/);
    assert.equal(await page.locator("main tbody tr").count(), 1);
    assert.match(await words(), /No backup is scheduled/);
    await page.locator(".schedule summary").click();
    assert.equal(await page.locator("button[value=off]").count(), 0, "there is no schedule to turn off");
    assert.equal(await page.inputValue("[name=every_hours]"), "24");
    await send(page, "/system/backups/schedule");
    assert.match(await words(), /Next backup:/);
    await page.locator(".schedule summary").click();
    await Promise.all([page.waitForURL(/notice=backup-schedule-off/), page.click("button[value=off]")]);
    assert.match(await words(), /No backup is scheduled/);
    assert.equal(await page.locator("main tbody tr").count(), 1, "the backup stays");
    assert.match(readFileSync(file, "utf8"), /^backup_every_hours = 0$/m);
    assert.deepEqual(await violations(page), []);
  } finally {
    await context.close();
    await own.close();
  }
});

test("a fresh box is backed up by the pages alone", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/`);
  await page.click(".nav a[href^='/system']");
  await page.click(".tabs a[href='/system/backups']");
  // Where nothing else is chosen, the server's own place is offered.
  assert.match(await page.inputValue("[name=directory]"), /\/backups$/);
  await page.fill("[name=directory]", join(folder, "disk", "backups"));
  await page.fill("[name=passphrase]", SECRET);
  await page.fill("[name=again]", SECRET);
  await send(page, "/system/backups/schedule");
  assert.match(await page.locator("main").innerText(), /Next backup: within a minute/);
  await Promise.all([page.waitForURL(/notice=backup/), page.click(".head button.pri")]);
  const row = page.locator("main tbody tr");
  assert.ok((await row.count()) >= 1);
  const file = await context.request.get(house.origin + (await row.first().locator("a[download]").getAttribute("href")));
  assert.match((await file.body()).toString("latin1").slice(0, 40), /^fardel backup/);
  assert.equal(statSync(join(folder, "disk", "backups")).mode & 0o777, 0o700);
  assert.doesNotMatch(readFileSync(join(folder, "fardel.toml"), "utf8"), new RegExp(SECRET));
  assert.deepEqual(complaints, []);
  await context.close();
});

test("a saved setting says so in its row, keeps the filter and the place", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/system/settings`);
  assert.equal(await page.locator("main .head code").innerText(), join(folder, "fardel.toml"), "the file in use");
  const row = page.locator("#backup_keep");
  const save = async (value) => {
    await row.locator("summary").click();
    await row.locator("input[name=value]").fill(value);
    await Promise.all([page.waitForEvent("framenavigated"), row.locator("button.pri").click()]);
    await page.waitForLoadState("load");
  };
  await save("8");
  assert.match(await row.locator(".said").innerText(), /Number of backups kept was changed/);
  assert.equal(await page.evaluate(() => document.activeElement.closest("li")?.id), "backup_keep");
  const box = await row.boundingBox();
  assert.ok(box.y > 0 && box.y < 720, `the row is in view: ${box.y}`);
  assert.deepEqual(await violations(page), []);
  await page.goto(`${house.origin}/system/settings?q=backup&changed=1`);
  await save("9");
  assert.equal(await page.inputValue("[role=search] [name=q]"), "backup");
  assert.ok(await page.isChecked("[name=changed]"));
  await context.close();
});

test("a user has a page that every owner's name leads to", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  for (const name of ["shown", "held"]) {
    const form = { name, image: "host", kind: "batch", command: "sleep 600", cpu: "0.1", memory: "0.1", gpu: "0.3" };
    const sent = await context.request.post(`${house.origin}/sessions/new`, { form, headers: { origin: house.origin }, maxRedirects: 0 });
    assert.equal(sent.status(), 303, await sent.text());
  }
  // What root launched has no user's page.
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", "roots", "host", "--", "sleep", "600");
  await page.goto(`${house.origin}/users`);
  await page.click(`#list a[href='/users/${PERSON.name}']`);
  const words = await page.locator("main").innerText();
  for (const wanted of [/shown/, /Administrator/, /Access tokens/, /127\.0\.0\.1/, /this browser/, /Waiting sessions/]) assert.match(words, wanted);
  assert.equal(await page.locator(`main a[href='/events?q=user%3A${PERSON.name}']`).count(), 1);
  assert.deepEqual(await violations(page), []);
  const gpu = page.locator("#slices a[href^='/users/']").first();
  await until(() => "the slice has an owner", async () => {
    await page.goto(`${house.origin}/gpus`);
    await page.locator("#plan .id a").first().click();
    return (await gpu.count()) > 0;
  });
  assert.equal(await gpu.getAttribute("href"), `/users/${PERSON.name}`);
  await page.goto(`${house.origin}/events`);
  assert.ok((await page.locator(`#list a[href='/users/${PERSON.name}']`).count()) > 0);
  assert.equal(await page.locator("#list a[href='/users/root']").count(), 0, "root has no page");
  await page.goto(`${house.origin}/events?kind=users`);
  assert.ok((await page.locator("#list a[href='/users/jae']").count()) > 0, "who was added is named");
  await page.goto(`${house.origin}/nodes`);
  await page.locator(`#here a[href='/users/${PERSON.name}']`).first().waitFor();
  assert.equal(await page.locator("#here a[href='/users/root']").count(), 0);
  // For nobody else.
  const other = await browser.newContext({ locale: "en-US" });
  const user = await other.newPage();
  await user.goto(`${house.origin}/login`);
  await user.fill("#name", "jae");
  await user.fill("#password", PERSON.password);
  await Promise.all([user.waitForURL(`${house.origin}/`), user.click("form[action='/login'] button[type=submit]")]);
  assert.equal((await user.goto(`${house.origin}/users/${PERSON.name}`)).status(), 403);
  await other.close();
  await context.close();
});

test("a suspended user is activated again, and the words say so", async () => {
  const context = await signedIn({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${house.origin}/users/jae`);
  await page.click("a[href$='/suspend']");
  await Promise.all([page.waitForURL(/notice=/), page.click("section.question form button:not([name=force])")]);
  await page.goto(`${house.origin}/users/jae`);
  assert.match(await page.locator("h1").innerText(), /Suspended/);
  await Promise.all([page.waitForURL(/notice=/), page.click("main .head button:has-text('Activate')")]);
  assert.match(await page.locator(".notice").innerText(), /jae is active/);
  await context.close();
});

test("last week's use of a GPU is three clicks from the overview", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/`);
  await page.click(".nav a[href='/gpus']");
  await page.locator("#plan .id a").nth(1).click();
  const week = page.locator("nav.seg a[href*='range=week']");
  await until(() => "the card has a history", async () => (await week.count()) > 0 || !(await page.reload()));
  await week.click();
  await page.locator(".sums").waitFor();
  const words = await page.locator(".sums").innerText();
  assert.match(words, /\d+ \w{3} \d\d:\d\d – \d+ \w{3} \d\d:\d\d/, "from when to when");
  assert.match(words, /GPU-hours\s+[\d.]+ h allocated/);
  for (const label of (await page.locator(".chart .x").first().locator("span").allInnerTexts()).slice(0, 3)) assert.match(label, /\d+ \w{3}/, "a date");
  const file = await context.request.get(house.origin + (await page.locator(".head .act a[href^='/history/export']").getAttribute("href")));
  assert.doesNotMatch((await file.text()).split("\r\n")[0], /cpu|,memory/, "a GPU has no processors");
  // The week of the calendar before this one, and who held the GPU in it.
  await page.click("nav.seg a[href*='range=last-week']");
  await page.locator("section[aria-labelledby=ho]").waitFor();
  await page.click("nav.seg a[href*='range=this-week']");
  await page.locator("section[aria-labelledby=ho] :is(table, .none)").waitFor();
  const held = JSON.parse(house.command("history", "--of", new URL(page.url()).searchParams.get("of"), "--range", "this-week", "-o", "json"));
  assert.equal(await page.locator("section[aria-labelledby=ho] tbody tr").count(), held.holders.length, "the page and the command agree");
  const holders = await context.request.get(`${page.url().replace("/history?", "/history/export?")}&what=holders`);
  const lines = (await holders.text()).trim().split("\r\n");
  assert.equal(lines[0], "session,user,gpu_hours,from,until,id");
  assert.equal(lines.length - 1, held.holders.length, "the file has who held it");
  await context.close();
});

test("the client program is downloaded by those who are signed in", async () => {
  const context = await signedIn();
  const place = `${house.origin}/downloads/fardel`;
  const first = await context.request.head(place);
  const { etag, "content-disposition": kept } = first.headers();
  assert.deepEqual([first.status(), kept], [200, 'attachment; filename="fardel"']);
  assert.ok(Number(first.headers()["content-length"]) > 1 << 20, "a whole program");
  assert.equal((await context.request.head(place, { headers: { "If-None-Match": etag } })).status(), 304);
  const stranger = await browser.newContext();
  const answer = await stranger.request.head(place, { maxRedirects: 0 });
  assert.ok([303, 401].includes(answer.status()), `a stranger gets ${answer.status()}`);
  assert.equal(answer.headers().etag, undefined);
  await stranger.close();
  await context.close();
});

test("GPUs stand in the first answer, and a slice is stopped there after a question", async () => {
  const context = await signedIn();
  const first = await (await context.request.get(`${house.origin}/gpus`)).text();
  assert.equal(first.match(/class="gpu[ "]/g).length, 2);
  assert.match(first, /<svg class="sp/, "with what they did lately");
  const page = await context.newPage();
  await page.goto(`${house.origin}/gpus`);
  await page.locator("#plan .id a").first().click();
  const stop = page.locator("#slices a[href^='/sessions/stop']", { hasText: "Stop" });
  const before = await stop.count();
  assert.ok(before >= 1);
  await page.locator("#slices tr", { hasText: "held" }).locator("a[data-dialog]").click();
  const dialog = page.locator("dialog.question[open]");
  await dialog.waitFor();
  assert.match(await dialog.innerText(), /held/);
  assert.equal(await stop.count(), before, "nothing is stopped before the question");
  await Promise.all([page.waitForURL(/\/gpus\/.*notice=stop/), dialog.locator("form button").first().click()]);
  await until(() => "it is gone", async () => !(await page.locator("#slices").innerText()).includes("held"));
  await context.close();
});

test("the reason of a cordon that is too long stays in its field", async () => {
  const context = await signedIn({ locale: "ko-KR" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/gpus`);
  await page.locator("#plan .id a").nth(1).click();
  await page.click("[popovertarget=cordon]");
  const long = "x".repeat(300);
  await page.fill("#cordon-note", long);
  await Promise.all([page.waitForEvent("framenavigated"), page.locator("#cordon button.pri").click()]);
  await page.waitForLoadState("load");
  assert.deepEqual(await faulty(page, "note", long), []);
  assert.match(await sentence(page, "note"), /[가-힣]/);
  assert.ok(await page.locator("#cordon").evaluate((form) => form.matches(":popover-open")));
  await context.close();
});

test("a step of the installation that is refused says so at its field", async () => {
  const context = await signedIn({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${house.origin}/setup/time`);
  const headers = { origin: house.origin };
  const refused = await context.request.post(`${house.origin}/setup/time`, { form: { zone: "Asia/Nowhere" }, headers, maxRedirects: 0 });
  assert.equal(refused.status(), 422);
  const time = await refused.text();
  assert.match(time, /<select aria-invalid="true" aria-describedby="fault-zone"[^>]* autofocus/);
  assert.match(time, /<option value="Asia\/Nowhere" selected>/, "what was sent stays");
  const trial = await context.request.post(`${house.origin}/setup/test/run`, { form: { image: "no-such:1" }, headers, maxRedirects: 0 });
  assert.ok(trial.status() >= 400, `${trial.status()}`);
  assert.match(await trial.text(), /<select aria-invalid="true" aria-describedby="fault-image"/);
  await context.close();
});

for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["ko-KR", false]]) {
  test(`an import that is refused stands at its field, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await signedIn({ locale, javaScriptEnabled: script });
    const page = await context.newPage();
    const korean = locale === "ko-KR";
    await page.goto(`${house.origin}/images`);
    mkdirSync(join(folder, locale + script), { recursive: true });
    const archive = image(join(folder, locale + script), "x:1", 4096);
    for (const name of ["host", "No Such Name!"]) {
      await page.setInputFiles("#archive", archive);
      await page.fill("#image-name", name);
      await Promise.all([page.waitForEvent("framenavigated"), page.click("#import button.pri")]);
      await page.locator("#fault-name").waitFor();
      assert.match(await sentence(page, "name"), korean ? /[가-힣]/ : /[a-z]{3}/);
      assert.equal(await page.inputValue("#image-name"), name);
      if (script) assert.deepEqual(await faulty(page, "name", name), []);
      // The archive is here already and needs not be sent again.
      assert.match(await page.locator("#import").innerText(), /image\.tar/);
    }
    if (script) assert.deepEqual(await violations(page), []);
    // What is no archive fails while it is read: the list names the file, and the row can be cleared.
    const broken = join(folder, "not an archive.tar");
    writeFileSync(broken, "no tar at all");
    await page.setInputFiles("#archive", broken);
    await page.fill("#image-name", "");
    // The address stays the same, so the page itself is waited for: the stream may name the job before it.
    await Promise.all([page.waitForEvent("framenavigated"), page.click("#import button.pri")]);
    await page.waitForLoadState("load");
    const jobs = page.locator("#jobs");
    await until(() => "the import fails", async () => {
      if (!script) await page.goto(`${house.origin}/images`);
      return (await jobs.innerText()).includes("not an archive.tar");
    });
    await until(() => "it says why", async () => {
      if (!script) await page.goto(`${house.origin}/images`);
      return (await jobs.locator("form").count()) > 0;
    });
    await Promise.all([page.waitForEvent("framenavigated"), jobs.locator("form button").click()]);
    await until(() => "the row is cleared", async () => !(await jobs.innerText()).includes("not an archive.tar"));
    await context.close();
  });
}

test("a node says what sessions use beside the load of the whole machine", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/nodes`);
  const room = page.locator("#room");
  assert.match(await room.locator(".mx").first().innerText(), /\d+%\s+by sessions/);
  assert.match(await room.locator(".sums").innerText(), /Load of the whole machine\s+[\d.]+ · [\d.]+ · [\d.]+ over 1, 5, 15 min, on \d+ cores?/);
  await context.close();
});

test("Korean counts GPUs, calls events 이벤트 and a cancelled request 취소됨", async () => {
  const context = await signedIn({ locale: "ko-KR" });
  const page = await context.newPage();
  const headers = { origin: house.origin };
  const form = { name: "four", image: "host", kind: "batch", command: "true", cpu: "0.1", memory: "0.1", gpu: "2", start_at: new Date(Date.now() + 200 * 86_400_000).toISOString().slice(0, 16) };
  const sent = await context.request.post(`${house.origin}/sessions/new`, { form, headers, maxRedirects: 0 });
  assert.equal(sent.status(), 303, await sent.text());
  await page.goto(`${house.origin}/users/${PERSON.name}`);
  assert.match(await page.locator("main").innerText(), /GPU 2장/);
  house.command("session", "stop", "four");
  await page.goto(`${house.origin}/notices`);
  assert.match(await page.locator("#list").innerText(), /four\s*취소되었습니다/);
  await page.goto(`${house.origin}/sessions?q=name%3Afour`);
  assert.match(await page.locator("#list").innerText(), /취소됨/);
  await page.goto(`${house.origin}/events`);
  assert.equal(await page.locator("h1").innerText(), "이벤트");
  assert.doesNotMatch(await page.locator("main").innerText(), /기록/);
  await context.close();
});

test("users, a user and backups fit and are accessible in both languages and themes", async () => {
  const told = [];
  for (const [locale, colorScheme] of [["en-US", "light"], ["ko-KR", "dark"]]) {
    const context = await signedIn({ locale, colorScheme });
    const page = await context.newPage();
    const complaints = listen(page);
    for (const path of [`/users/${PERSON.name}`, "/users", "/system/backups", "/history?range=week"]) {
      await page.goto(house.origin + path, { waitUntil: "load" });
      for (const width of [1440, 390]) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await overflow(page);
        if (wide > 0) told.push(`${path} ${locale} ${width} px: ${wide} px too wide`);
        told.push(...(await violations(page)).map((line) => `${path} ${locale} ${width} px: ${line}`));
      }
    }
    told.push(...complaints);
    await context.close();
  }
  assert.deepEqual(told, []);
});
