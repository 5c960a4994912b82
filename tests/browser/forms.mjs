// Every form of the console with every kind of wrong value: the fault stands at its field, the value is kept, the
// focus is there, and it is the same after the page's live stream spoke; in both languages, by keyboard, and without
// script. What was typed survives a sign-in that ended.
//
// Promise (Installation and console): A refused form shows each fault at its field and keeps what was typed.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { image } from "./lib/archive.mjs";
import { focusGiven, launch, violations } from "./lib/browser.mjs";
import { open, PERSON, setUp, until } from "./lib/house.mjs";

// Far enough that a session waits for as long as a test.
const LATER = new Date(Date.now() + 200 * 86_400_000).toISOString();

let browser;
let house;
let state;
let waiting;
let ended;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
  // One session that waits for ever, so that its limits and its name can be changed on every machine.
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--gpu", "0.35", "--start-at", LATER, "--name", "waits", "host", "--", "true");
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", LATER, "--name", "taken", "host", "--", "true");
  const list = JSON.parse(house.command("ps", "-o", "json"));
  waiting = (list.items ?? list).find((session) => session.name === "waits").id;
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--start-at", LATER, "--name", "over", "host", "--", "true");
  house.command("session", "stop", "over");
  const all = JSON.parse(house.command("ps", "-a", "-o", "json"));
  ended = (all.items ?? all).find((session) => session.name === "over").id;
});

after(async () => {
  await browser?.close();
  await house?.close();
});

// Page, form, how it opens, field, what is typed.
const FORMS = () => [
  [`/sessions/${waiting}`, "#limits", "memory", "banana"],
  [`/sessions/${waiting}`, "#limits", "cpu", "0"],
  [`/sessions/${waiting}`, "#limits", "cpu", "1,000"],
  [`/sessions/${waiting}`, "#limits", "gpu", "7,,5"],
  [`/sessions/${waiting}`, "#limits", "gpu_memory", "much"],
  [`/sessions/${waiting}`, "#rename", "name", "taken"],
  [`/sessions/${waiting}`, "#rename", "name", "no such name!"],
  [`/sessions/${ended}`, "#remove", "typed", "something else"],
  ["/sessions/new", "#launch", "cpu", "1,000"],
  ["/sessions/new", "#launch", "memory", "banana"],
  ["/sessions/new", "#launch", "gpu", "x"],
  ["/sessions/new", "#launch", "name", "no such name!"],
  ["/sessions/new", "#launch", "max_runtime", "soon"],
  ["/sessions/new", "#launch", "replicas", "many"],
  ["/sessions/new", "#launch", "containers", "many"],
  ["/sessions/new", "#launch", "shm", "lots"],
  ["/sessions/new", "#launch", "disk", "lots"],
  ["/sessions/new", "#launch", "env", "no assignment"],
  ["/sessions/new", "#launch", "labels", "no assignment"],
  ["/sessions/new", "#launch", "mounts", "data:here"],
  ["/sessions/new", "#launch", "description", "x".repeat(501)],
  ["/me", "[action='/me/password']", "old", "not the old one", { new: "another long walk 8", again: "another long walk 8" }],
  ["/me", "[action='/me/password']", "new", "password1234", { old: PERSON.password, again: "password1234" }],
  ["/me", "[action='/me/password']", "again", "something else 9", { old: PERSON.password, new: "another long walk 8" }],
  ["/me", "[action='/me/tokens']", "name", "   "],
  ["/me/keys", "[action='/me/keys']", "name", "   "],
  ["/me/ssh-keys", "[action='/me/ssh-keys']", "public_key", "ssh-rsa AAAA"],
  ["/me/startup", "[action='/me/startup/dotfiles']", "path", "../x"],
  ["/me/startup", "[action='/me/startup/dotfiles']", "mode", "4755", { path: ".bashrc" }],
  ["/me/startup", "[action='/me/startup/script']", "script", "   "],
  ["/me/startup", "[action='/me/startup/variables']", "name", "LD_PRELOAD", { value: "x" }],
  ["/folders", "[action='/folders']", "name", "a/b"],
  ["/users/new", "[action='/users/new']", "name", "no such name!", { password: "another long walk 8", again: "another long walk 8" }],
  ["/users/new", "[action='/users/new']", "name", "mina", { password: "another long walk 8", again: "another long walk 8" }],
  ["/users/new", "[action='/users/new']", "password", "password1234", { name: "jae", again: "password1234" }],
  ["/users/new", "[action='/users/new']", "again", "something else 9", { name: "jae", password: "another long walk 8" }],
];

/// Opens the form, types one wrong value and sends it with Enter; text areas have a button.
async function send(page, form, field, value, others = {}) {
  await page.evaluate((form) => {
    const element = document.querySelector(form);
    element.querySelector("details")?.setAttribute("open", "");
    // The browser's own bubbles would keep the form from the server.
    element.noValidate = true;
    if (element.popover) element.showPopover();
  }, form);
  for (const [name, other] of Object.entries(others)) await page.fill(`${form} [name=${name}]`, other);
  const control = page.locator(`${form} [name=${field}]`).first();
  await control.fill(value);
  await Promise.all([
    page.waitForEvent("framenavigated"),
    control.evaluate((control) => {
      const form = control.form;
      const go = form.id === "launch" ? document.querySelector("[name=act][value=launch]") : form.querySelector("button:not([type=button])");
      form.requestSubmit(go);
    }),
  ]);
  await page.waitForLoadState("load");
  // Whether it is at the right field is asked below.
  await focusGiven(page);
}

/// What is wrong about a refused form on the page, in words; empty when all is as it should be.
async function faulty(page, form, field, value) {
  // A secret is never sent back.
  const secret = (await page.locator(`${form} [name=${field}]`).first().getAttribute("type")) === "password";
  return page.evaluate(([form, field, value, secret]) => {
    const told = [];
    const control = document.querySelector(`${form} [name=${field}][aria-invalid=true]`);
    if (!control) return [`no field is marked in ${document.querySelector(form)?.innerText ?? "no form"}`];
    if (control.value !== (secret ? "" : value)) told.push(`the value is ${control.value}`);
    if (document.activeElement !== control) told.push(`the focus is at ${document.activeElement.outerHTML.slice(0, 80)}`);
    const note = document.getElementById((control.getAttribute("aria-describedby") ?? "").split(" ")[0]);
    if (!note?.classList.contains("fault") || note.textContent.trim().length < 8) told.push(`its sentence is ${note?.textContent}`);
    const box = note?.getBoundingClientRect();
    if (!box || box.height === 0) told.push("its sentence cannot be seen");
    return told;
  }, [form, field, value, secret]);
}

for (const locale of ["en-US", "ko-KR"]) {
  test(`each wrong value of each form stands at its field, ${locale}`, async () => {
    const context = await browser.newContext({ storageState: state, locale });
    const page = await context.newPage();
    const told = [];
    // The marks are the same code in both languages; in Korean each third shows the words.
    const forms = FORMS().filter((_, at) => locale === "en-US" || at % 3 === 0);
    for (const [path, form, field, value, others] of forms) {
      await page.goto(house.origin + path);
      await send(page, form, field, value, others);
      const faults = await faulty(page, form, field, value);
      told.push(...faults.map((fault) => `${path} ${field}=${value}: ${fault}`));
      if (locale === "ko-KR" && faults.length === 0) {
        const words = await page.locator(`#fault-${field}`).first().innerText();
        if (!/[가-힣]/.test(words)) told.push(`${path} ${field}=${value}: not Korean: ${words}`);
      }
    }
    assert.deepEqual(told, []);
    await context.close();
  });
}

test("who signs in with a wrong password is told at the field", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  await send(page, "[action='/login']", "password", "not this one", { name: PERSON.name });
  assert.deepEqual(await faulty(page, "[action='/login']", "password", "not this one"), []);
  assert.equal(await page.inputValue("#name"), PERSON.name);
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("a refused dialog stays open with its value after the live stream spoke", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/${waiting}`);
  await send(page, "#limits", "memory", "banana");
  assert.deepEqual(await faulty(page, "#limits", "memory", "banana"), []);
  assert.deepEqual(await violations(page), []);
  // The stream answers a change of the session: its other parts follow, the form stays.
  house.command("session", "rename", "waits", "waits-still");
  await until(() => "the stream brings the rename", async () => (await page.locator("#timeline").innerText()).includes("Renamed"));
  assert.deepEqual(await faulty(page, "#limits", "memory", "banana"), []);
  assert.ok(await page.locator("#limits").evaluate((form) => form.matches(":popover-open")));
  house.command("session", "rename", "waits-still", "waits");
  // Mended, it goes through, and the address is the session's.
  await page.fill("#limits [name=memory]", "0,5g");
  await Promise.all([page.waitForURL(new RegExp(`/sessions/${waiting}(\\?|$)`)), page.keyboard.press("Enter")]);
  await page.goto(`${house.origin}/sessions/${waiting}`);
  assert.equal(await page.locator("#limits [name=memory]").inputValue(), "0.5");
  await context.close();
});

test("the address of a form that was refused leads back to its page", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const answer = await page.goto(`${house.origin}/sessions/${waiting}/limits`);
  assert.equal(answer.status(), 200);
  assert.equal(new URL(page.url()).pathname, `/sessions/${waiting}`);
  await context.close();
});

test("without script a refused dialog is on the page, with its fault and the focus", async () => {
  const context = await browser.newContext({ storageState: state, javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/${waiting}`);
  await page.click("#verbs [popovertarget=more]");
  await page.click("#more [popovertarget=rename]");
  await page.fill("#rename [name=name]", "no such name!");
  await page.locator("#rename [name=name]").press("Enter");
  await page.locator("#fault-name").waitFor({ state: "visible" });
  assert.equal(await page.locator("#rename [name=name]").inputValue(), "no such name!");
  assert.equal(await page.locator("#rename [name=name]:focus").count(), 1);
  await context.close();
});

test("fields are marked while they are typed, and unmarked when they are right", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  await page.locator("#memory").pressSequentially("x");
  await page.locator("#fault-memory").waitFor();
  assert.equal(await page.locator("#memory").getAttribute("aria-invalid"), "true");
  assert.deepEqual(await violations(page), []);
  await page.fill("#memory", "1,5");
  await page.locator("#fault-memory").waitFor({ state: "detached" });
  assert.equal(await page.locator("#memory").getAttribute("aria-invalid"), null);
  await until(() => "the command follows", async () => (await page.locator("#cli-line").innerText()).includes("--mem 1536m"));
  // A link fills the form.
  await page.goto(`${house.origin}/sessions/new?command=python3+train.py&cpu=0.5&memory=2&shm=128m&env=A%3D1`);
  assert.equal(await page.inputValue("#command"), "python3 train.py");
  assert.equal(await page.inputValue("#shm"), "128m");
  assert.equal(await page.locator("[name=kind][value=batch]").isChecked(), true);
  assert.match(await page.locator("#cli-line").innerText(), /--cpu 0.5 --mem 2g --shm 128m -e A=1 host -- sh -c 'python3 train.py'/);
  await context.close();
});

test("a long description leaves six lines of the command, and all of it is copied", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.addInitScript(() => {
    Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { globalThis.copied = text; } } });
  });
  await page.goto(`${house.origin}/sessions/new`);
  await page.locator("details.fold > summary").click();
  const told = "Compares the losses of two runs. ".repeat(15).trim();
  await page.fill("#description", told);
  const line = page.locator("#cli-line");
  await until(() => "the command follows", async () => (await line.textContent()).includes(told));
  const shown = await line.evaluate((line) => ({
    lines: line.getBoundingClientRect().height / parseFloat(getComputedStyle(line).lineHeight),
    clipped: line.scrollHeight > line.clientHeight,
  }));
  assert.ok(shown.lines < 6.5 && shown.clipped, JSON.stringify(shown));
  await page.click("[data-copy='#cli-line']");
  await until(() => "it is copied", () => page.evaluate(() => globalThis.copied));
  const copied = await page.evaluate(() => globalThis.copied);
  assert.ok(copied.startsWith("fardel run") && copied.includes(told) && copied.endsWith("host"), copied);
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("an account is added, changed and removed in the page, each step after a question", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const password = "a walk in the rain 5";
  await page.goto(`${house.origin}/users`);
  await page.click("a[href='/users/new']");
  await page.fill("#name", "jae");
  await page.fill("#password", password);
  await page.fill("#again", password);
  await Promise.all([page.waitForURL(/notice=user-added/), page.keyboard.press("Enter")]);
  assert.match(await page.locator(".notice").innerText(), /jae was added/);
  const account = async () => {
    const list = JSON.parse(house.command("user", "ls", "-o", "json"));
    return (list.items ?? list).find((user) => user.name === "jae");
  };
  assert.equal((await account()).role, "user");
  const menu = async (verb) => {
    await page.goto(`${house.origin}/users?q=jae`);
    await page.click("#list td.act a");
    await page.locator("dialog.question").waitFor();
    await page.click(`dialog.question a[href$='/${verb}']`);
  };
  await menu("role");
  await page.locator("dialog.question form[action$='/role']").waitFor();
  assert.deepEqual(await violations(page), []);
  await Promise.all([page.waitForURL(/user-promoted/), page.click("dialog.question form button")]);
  assert.equal((await account()).role, "administrator");
  await menu("password");
  await page.waitForURL(/\/password$/);
  await page.fill("#password", `${password}x`);
  await page.fill("#again", `${password}x`);
  await Promise.all([page.waitForURL(/user-password/), page.keyboard.press("Enter")]);
  const own = await browser.newContext();
  const theirs = await own.newPage();
  await theirs.goto(`${house.origin}/login`);
  await theirs.fill("#name", "jae");
  await theirs.fill("#password", `${password}x`);
  await Promise.all([theirs.waitForURL((url) => url.pathname !== "/login"), theirs.keyboard.press("Enter")]);
  await own.close();
  await menu("remove");
  await page.locator("form[action$='/remove']").waitFor();
  await Promise.all([page.waitForURL(/user-departed/), page.click("form[action$='/remove'] .dan")]);
  assert.equal(await account(), undefined);
  await context.close();
});

test("a form is saved as a template, opened again and deleted", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  await page.fill("#cpu", "0.7");
  await page.fill("#max_runtime", "4h");
  await page.click("[popovertarget=templates]");
  await page.fill("#template-name", "Nightly");
  await page.keyboard.press("Enter");
  await page.locator("#templates a", { hasText: "Nightly" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.goto(`${house.origin}/sessions/new`);
  await page.click("[popovertarget=templates]");
  await Promise.all([page.waitForURL(/max_runtime=4h/), page.click("#templates a")]);
  assert.equal(await page.inputValue("#cpu"), "0.7");
  await page.click("[popovertarget=templates]");
  await page.click("#templates li button");
  assert.equal(await page.locator("#templates li").count(), 0);
  await context.close();
});

for (const how of ["typing", "launching"]) {
  test(`a launch form survives a sign-in that ends while ${how}`, async () => {
    const context = await browser.newContext({ storageState: state });
    const page = await context.newPage();
    await page.goto(`${house.origin}/sessions/new`);
    await page.check("[name=kind][value=batch]", { force: true });
    await page.fill("#command", "python3 train.py");
    await page.fill("#cpu", "0.5");
    await page.fill("#name", `kept-${how}`);
    await page.locator("#cli-line", { hasText: `kept-${how}` }).waitFor();
    await context.clearCookies();
    if (how === "typing") await page.locator("#name").pressSequentially("2");
    else await page.locator("[name=act][value=launch]").click();
    await page.waitForURL(/\/login\?next=/);
    // It says why.
    await page.locator(".banner").waitFor();
    await page.fill("#name", "mina");
    await page.fill("#password", "a long walk by the river 7");
    await Promise.all([page.waitForURL(/\/sessions\/new/), page.keyboard.press("Enter")]);
    await page.locator("#draft").waitFor();
    assert.equal(await page.inputValue("#command"), "python3 train.py");
    assert.equal(await page.inputValue("#cpu"), "0.5");
    assert.equal(await page.inputValue("#name"), how === "typing" ? "kept-typing2" : "kept-launching");
    assert.equal(await page.locator("[name=kind][value=batch]").isChecked(), true);
    // A reload keeps it as well; a new form is empty.
    await page.fill("#cpu", "0.7");
    await page.reload();
    await until(() => "the draft after a reload", async () => (await page.inputValue("#cpu")) === "0.7");
    await page.goto(`${house.origin}/sessions/new?image=host`);
    assert.equal(await page.inputValue("#command"), "");
    await context.close();
  });
}

test("back to the launch form finds what was typed in it", async () => {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/new`);
  await page.check("[name=kind][value=batch]", { force: true });
  await page.fill("#command", "python3 back.py");
  await page.fill("#cpu", "0.6");
  await Promise.all([page.waitForURL(`${house.origin}/queue`), page.locator(".frame > .nav a[href='/queue']").click()]);
  await page.goBack();
  await page.waitForURL(`${house.origin}/sessions/new`);
  await until(() => "the command is there", async () => (await page.inputValue("#command")) === "python3 back.py");
  assert.equal(await page.inputValue("#cpu"), "0.6");
  assert.equal(await page.locator("[name=kind][value=batch]").isChecked(), true);
  await context.close();
});

test("of twenty images eight environments are shown, and the others are unfolded by key and without script", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fardel-forms-"));
  const names = Array.from({ length: 20 }, (_, n) => `lab/image${String(n).padStart(2, "0")}:1`);
  try {
    house.command("image", "import", image(folder, names, 1000));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  for (const javaScriptEnabled of [true, false]) {
    const context = await browser.newContext({ storageState: state, locale: "en-US", javaScriptEnabled });
    const page = await context.newPage();
    await page.goto(`${house.origin}/sessions/new`);
    const visible = page.locator("label.opt:visible [name=image]");
    assert.equal(await visible.count(), 8);
    await page.locator("summary", { hasText: "13 more images" }).focus();
    await page.keyboard.press("Enter");
    await until(() => "the others are unfolded", async () => (await visible.count()) === 21);
    if (javaScriptEnabled) {
      // The keyboard goes on where the reader looks, and nothing is chosen by that.
      const first = page.locator("details [name=image]").first();
      await until(() => "the first of them has the focus", () => first.evaluate((one) => one === document.activeElement));
      assert.equal(await page.locator("[name=image]:checked").inputValue(), "host");
      await page.keyboard.press("Space");
      assert.equal(await first.isChecked(), true);
      assert.deepEqual(await violations(page), []);
    }
    // A chosen image is never folded away.
    await page.goto(`${house.origin}/sessions/new?image=${encodeURIComponent(names[17])}`);
    assert.equal(await page.locator("label.opt:visible [name=image]:checked").inputValue(), names[17]);
    await context.close();
  }
});

test("a weight of nobody and out of range has both faults at their fields", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/fair-share`);
  await page.fill("#subject", "nobody");
  await page.fill("#weight", "0");
  await page.locator("form[action$='/weights'] button.btn").click();
  await page.locator("#fault-subject", { hasText: "no user" }).waitFor();
  await page.locator("#fault-weight", { hasText: "between 1 and 1000" }).waitFor();
  // A try saves nothing and keeps what was chosen; its answer has no address of its own.
  await page.goto(`${house.origin}/fair-share`);
  await page.selectOption("#order", "fair");
  await page.click("button:has-text('Try on the last month')");
  await page.locator("#tried", { hasText: "last 30 days" }).waitFor();
  assert.equal(await page.inputValue("#order"), "fair");
  await page.fill("#half_life_hours", "0");
  await page.click("button:has-text('Try on the last month')");
  await page.locator("#fault-half_life_hours", { hasText: "between 1 and" }).waitFor();
  await page.goto(`${house.origin}/fair-share/try`);
  assert.equal(page.url(), `${house.origin}/fair-share`);
  await context.close();
});
