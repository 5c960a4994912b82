// How every page and command of the console is reached and what it says where nothing is: the palette, every open
// menu and dialog, the pages of a refusal, the menu's numbers. In both languages and themes nothing of it breaks a rule
// of accessibility.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { launch, listen, looks, violations } from "./lib/browser.mjs";
import { open, PERSON, setUp, until } from "./lib/house.mjs";

const TASTES = looks("what opens").map(({ locale, colorScheme }) => ({ locale, colorScheme }));

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
  const context = await browser.newContext({ locale: "en-US" });
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

async function visit(path, taste = {}) {
  const context = await browser.newContext({ storageState: state, locale: "en-US", ...taste });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(house.origin + path, { waitUntil: "load" });
  return { context, page, complaints };
}

/// Opens the palette and waits for what it offers before anything is typed.
async function palette(page) {
  await page.keyboard.press("Control+k");
  await page.locator("#palette[open] [role=option]").first().waitFor();
}

test("the palette finds places, commands and sessions, says when it finds nothing, and shows no marks", async () => {
  house.command("run", "-d", "--name", "waits-here", "--start-at", "2099-01-01T00:00:00Z".replace("2099", String(new Date().getUTCFullYear() + 1)), "host", "--", "true");
  const { context, page } = await visit("/queue");
  await palette(page);
  const places = await page.locator("#palette a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
  for (const href of ["/gpus", "/usage", "/me/ssh-keys", "/me/startup", "/system/checks", "/system/backups", "/about", "/docs"]) assert.ok(places.includes(href), `${href} in ${places}`);
  assert.doesNotMatch(await page.locator("#palette-list").innerText(), /[*`]|\]\(/, "raw marks");
  await page.fill("#palette [name=q]", "zzzz nothing");
  await page.locator("#palette [role=status]", { hasText: "zzzz nothing" }).waitFor();
  assert.equal(await page.locator("#palette [role=option]").count(), 0);
  // A page is found by what people call its subject, also from the search of the settings.
  await page.fill("#palette [name=q]", "site name");
  await page.locator("#palette a[href='/system/branding']").waitFor();
  // Arrows choose, the field keeps the focus and names what is chosen.
  await page.fill("#palette [name=q]", "system");
  await page.locator("#palette [role=option][aria-selected=true]").waitFor();
  const first = await page.getAttribute("#palette [name=q]", "aria-activedescendant");
  await page.keyboard.press("ArrowDown");
  const second = await page.getAttribute("#palette [name=q]", "aria-activedescendant");
  assert.notEqual(first, second);
  assert.equal(await page.getAttribute(`#${second}`, "aria-selected"), "true");
  // A command about a session leads to the dialog that asks first.
  const stop = page.locator("#palette [role=option]", { hasText: "Stop waits-here" });
  await page.fill("#palette [name=q]", "stop waits");
  await stop.waitFor();
  await Promise.all([page.waitForURL("**/sessions/*#stop"), page.keyboard.press("Enter")]);
  await page.locator("#stop", { hasText: "waits-here" }).waitFor({ state: "visible" });
  // Of another user's session the dialog names the owner and takes a reason for them.
  assert.match(await page.locator("#stop").innerText(), /It belongs to root\.[\s\S]*Reason, for the owner/);
  assert.match(house.command("ps", "-o", "name"), /waits-here/, "nothing was stopped");
  await page.keyboard.press("Escape");
  // A preference acts at once and comes back to the same page.
  await palette(page);
  await page.fill("#palette [name=q]", "theme dark");
  // Enter at once, before the answer is there: what is chosen then was asked for.
  await Promise.all([page.waitForEvent("load"), page.keyboard.press("Enter")]);
  await until(() => "the dark theme", () => page.evaluate(() => document.documentElement.dataset.theme === "dark"));
  await context.close();
});

test("the search of the settings names the pages that have what is no setting", async () => {
  const { context, page } = await visit("/system/settings?q=runtime");
  await page.locator("#other-pages a[href='/policies']").waitFor();
  await page.fill("section [name=q]", "listen_ssh");
  await page.press("section [name=q]", "Enter");
  await page.locator("#listen_ssh").waitFor();
  assert.equal(await page.locator("#other-pages").count(), 0);
  await context.close();
});

test("keys lead to the GPUs and to the system, and the list of keys says so", async () => {
  const { context, page } = await visit("/queue");
  await page.keyboard.press("?");
  assert.match(await page.locator("#sheet[open]").innerText(), /g then o, s, q, u, i, d, y[\s\S]*GPUs[\s\S]*system/);
  await page.keyboard.press("Escape");
  for (const [key, path] of [["u", "/gpus"], ["y", "/system/checks"], ["o", "/"]]) {
    await page.keyboard.press("g");
    await Promise.all([page.waitForURL(house.origin + path), page.keyboard.press(key)]);
  }
  await context.close();
});

test("menus, sheets, dialogs and the palette break no rule while they are open", async () => {
  const told = [];
  const look = async (page, what, taste) => {
    const lines = await violations(page);
    told.push(...lines.map((line) => `${what} ${taste.locale} ${taste.colorScheme}: ${line}`));
  };
  for (const taste of TASTES) {
    const { context, page, complaints } = await visit("/", taste);
    await page.click("[popovertarget=who]");
    await look(page, "account menu", taste);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.locator("#sheet[open]").waitFor();
    await look(page, "keys", taste);
    await page.keyboard.press("Escape");
    await palette(page);
    await look(page, "palette", taste);
    await page.fill("#palette [name=q]", "zzzz nothing");
    await page.locator("#palette [role=status]", { hasText: "zzzz" }).waitFor();
    await look(page, "empty palette", taste);
    await page.keyboard.press("Escape");
    await page.setViewportSize({ width: 390, height: 800 });
    await page.click("[popovertarget=menu]");
    await look(page, "phone menu", taste);
    await page.goto(`${house.origin}/sessions?q=waits-here`);
    await page.locator("a.nm", { hasText: "waits-here" }).first().click();
    await page.waitForURL("**/sessions/*-*");
    await page.goto(`${page.url()}#stop`);
    await page.reload();
    await page.locator("#stop").waitFor({ state: "visible" });
    await look(page, "stop dialog", taste);
    told.push(...complaints);
    await context.close();
  }
  assert.deepEqual(told, []);
});

test("a refusal says what to do, and no address is blank", async () => {
  execFileSync(house.binary, ["user", "add", "jun", "--password-stdin"], { env: house.environment, input: `${PERSON.password}\n` });
  const login = await browser.newContext({ locale: "en-US" });
  const door = await login.newPage();
  await door.goto(`${house.origin}/login`);
  await door.fill("#name", "jun");
  await door.fill("#password", PERSON.password);
  await Promise.all([door.waitForURL(`${house.origin}/`), door.click("form[action='/login'] button[type=submit]")]);
  const plain = await login.storageState();
  await login.close();
  for (const [path, status, locale, words] of [
    ["/nothing-here", 404, "en-US", /No page has this address/],
    ["/nothing-here", 404, "ko-KR", /이 주소에는 페이지가 없습니다/],
    ["/system/checks", 403, "en-US", /Only administrators can open this page/],
    ["/system/checks", 403, "ko-KR", /관리자만 열 수 있는 페이지입니다/],
    ["/logout", 405, "en-US", /shows no page/],
    ["/logout", 405, "ko-KR", /보여 줄 페이지가 없습니다/],
  ]) {
    const context = await browser.newContext({ storageState: status === 403 ? plain : state, locale });
    const page = await context.newPage();
    const answer = await page.goto(house.origin + path);
    assert.equal(answer.status(), status, path);
    const said = await page.locator("main").innerText();
    assert.match(said, words, path);
    assert.doesNotMatch(said, /system:|sessions:/, "the name of a permission");
    assert.deepEqual(await violations(page), [], path);
    await context.close();
  }
});

test("who is signed out and finds no page is told to sign in, not of a menu", async () => {
  for (const [locale, words, menu] of [["en-US", /sign in/, /menu/], ["ko-KR", /로그인/, /메뉴/]]) {
    const context = await browser.newContext({ locale });
    const page = await context.newPage();
    const answer = await page.goto(`${house.origin}/nothing-here`);
    assert.equal(answer.status(), 404);
    const said = await page.locator("main").innerText();
    assert.match(said, words);
    assert.doesNotMatch(said, menu);
    assert.deepEqual(await violations(page), []);
    await Promise.all([page.waitForURL(`${house.origin}/login`), page.click("main a[href='/login']")]);
    await context.close();
  }
});

test("events and the API reference are Korean on a Korean page", async () => {
  house.command("gpu", "cordon", "0");
  house.command("gpu", "uncordon", "0");
  const context = await browser.newContext({ storageState: state, locale: "ko-KR" });
  const page = await context.newPage();
  const english = (texts) => texts.map((text) => text.trim()).filter((text) => /[A-Za-z]{4}/.test(text) && !/[가-힣]/.test(text));
  await page.goto(`${house.origin}/events`);
  assert.deepEqual(english(await page.locator("#list th").allInnerTexts()), []);
  const said = await page.locator("#list tbody td.first").evaluateAll((cells) => cells.map((cell) => cell.cloneNode(true)).map((cell) => (cell.querySelector(".m")?.remove(), cell.textContent)));
  assert.ok(said.length > 2);
  assert.deepEqual(english(said), []);
  assert.deepEqual(english(await page.locator("#list tbody tr", { hasText: "gpu." }).locator("td.detail").allInnerTexts()), []);
  await page.goto(`${house.origin}/api/docs`);
  assert.deepEqual(english(await page.locator("summary span").allInnerTexts()), []);
  assert.deepEqual(english(await page.locator(".api h2").allInnerTexts()).filter((title) => title !== "GPU"), []);
  await context.close();
});

test("the menu has its numbers on every page", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  for (const path of ["/", "/sessions", "/queue", "/gpus", "/images", "/events", "/notices", "/me", "/system/checks", "/system/settings", "/docs", "/api/docs", "/about", "/nothing-here"]) {
    await page.goto(house.origin + path);
    const waiting = page.locator(".frame > .nav [data-count='1']");
    assert.equal(await waiting.innerText(), "1", path);
    // What the stream says first is the same.
    await page.waitForTimeout(500);
    assert.equal(await waiting.innerText(), "1", `${path}, live`);
  }
  await context.close();
});

test("the column of GPUs stands whichever rows are shown", async () => {
  const { context, page } = await visit("/sessions?group=off");
  const heads = () => page.locator("#list thead th").allInnerTexts();
  const all = await heads();
  assert.ok(all.includes("GPU"), `${all}`);
  await page.goto(`${house.origin}/sessions?q=waits-here`);
  assert.equal(await page.locator("#list tbody tr").count(), 1, "a session without a GPU");
  assert.deepEqual(await heads(), all);
  await context.close();
});

test("a page that is left ends its stream itself, and one that stays has a new one", async () => {
  const { context, page, complaints } = await visit("/sessions");
  // The first page's own stream is no longer to come.
  await page.locator("#live", { hasText: "Live" }).waitFor();
  const streams = [];
  page.on("request", (request) => request.url().includes("/sessions/live") && streams.push(request));
  await page.reload({ waitUntil: "load" });
  await until(() => "its stream", () => streams.length === 1);
  await page.locator("#live", { hasText: "Live" }).waitFor();
  await page.evaluate(() => {
    globalThis.errors = [];
    document.addEventListener("htmx:sse:error", (event) => globalThis.errors.push(String(event.detail?.error)));
    // What a browser says before it ends the network of the page; here the page stays.
    dispatchEvent(new Event("beforeunload"));
  });
  await until(() => "the stream is over", () => streams[0].failure()?.errorText === "net::ERR_ABORTED");
  await until(() => "a new one", () => streams.length === 2);
  await page.locator("#live", { hasText: "Live" }).waitFor();
  assert.deepEqual(await page.evaluate(() => globalThis.errors), []);
  assert.deepEqual(complaints, []);
  await context.close();
});
