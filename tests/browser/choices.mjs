// A site of a thousand projects and a hundred domains: no form lists them all. Fifty are offered, those that have what is
// typed once something is, and a value of nobody is told at its field; also in Korean, on a phone, and without script.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { focusGiven, launch, listen, overflow, violations } from "./lib/browser.mjs";
import { client } from "./lib/crowd.mjs";
import { open, PERSON, setUp, until } from "./lib/house.mjs";

const PROJECTS = 1000;
const DOMAINS = 100;
const OFFERED = 50;

let browser;
let house;
let state;

/// Does `work` for each number below `count`, some at a time.
async function each(count, work) {
  for (let from = 0; from < count; from += 25) {
    await Promise.all(Array.from({ length: Math.min(25, count - from) }, (_, at) => work(from + at)));
  }
}

before(
  async () => {
    browser = await launch();
    house = await open();
    const context = await browser.newContext();
    await setUp(await context.newPage(), house);
    state = await context.storageState();
    const cookie = (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
    await context.close();
    const ask = client(house.origin, cookie);
    await ask("/users", { name: "kim", password: PERSON.password, role: "user" });
    await each(DOMAINS, (n) => ask("/domains", { name: `dom-${String(n).padStart(2, "0")}`, title: "" }));
    await each(PROJECTS, async (n) => {
      const { id } = await ask("/projects", { name: `lab-${String(n).padStart(3, "0")}`, title: "" });
      const answer = await fetch(`${house.origin}/api/v1/projects/${id}/members/${PERSON.name}`, {
        method: "PUT",
        headers: { origin: house.origin, cookie, "sec-fetch-site": "same-origin", "content-type": "application/json" },
        body: JSON.stringify({ role: "member" }),
      });
      assert.ok(answer.ok, `${answer.status} ${await answer.text()}`);
    });
  },
  { timeout: 300_000 },
);

after(async () => {
  await browser?.close();
  await house?.close();
});

// Page, its form, the field, one that is far behind the first fifty, what else has to be typed, and what sends it.
const FORMS = [
  ["/sessions/new", "#launch", "project", "lab-999", {}, "#preview [name=act][value=launch]"],
  ["/announcements", "form[action='/announcements']", "domain", "dom-99", { text: "News." }, "form[action='/announcements'] button.btn"],
  ["/users/kim", "form[action$='/grants']", "domain", "dom-99", {}, "form[action$='/grants'] button.btn"],
  ["/projects/new", "form[action='/projects/new']", "domain", "dom-99", { name: "fresh" }, "form[action='/projects/new'] button.btn"],
];

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

async function fill(page, form, values) {
  for (const [name, value] of Object.entries(values)) await page.fill(`${form} [name=${name}]`, value);
}

async function send(page, form, go, script) {
  await Promise.all([
    page.waitForEvent("framenavigated"),
    // An inactive button says what is wrong before the form is sent; here the server has to.
    script
      ? page.locator(go).first().evaluate((go) => go.form.requestSubmit(go))
      : page.locator(go).first().click(),
  ]);
  await page.waitForLoadState("load");
}

const refused = async (page, form, field) => {
  await focusGiven(page);
  return page.locator(`${form} [name=${field}]`).evaluate((control) => ({
    marked: control.getAttribute("aria-invalid"),
    value: control.value,
    focus: document.activeElement === control,
    sentence: (document.getElementById(`fault-${control.name}`)?.textContent ?? "").trim().length > 8,
  }));
};

for (const [locale, colorScheme, width] of [["en-US", "light", 1440], ["ko-KR", "dark", 390]]) {
  test(`a form of a large site has fifty choices and fits, ${locale} ${colorScheme} ${width}`, async () => {
    const context = await signedIn({ locale, colorScheme, viewport: { width, height: 900 } });
    const page = await context.newPage();
    const complaints = listen(page);
    for (const [path, form, field] of [
      ...FORMS,
      ["/presets", "form[action='/presets']", "scope"],
      ["/reservations", "form[action='/reservations']", "holder"],
      ["/users/import", "form[action='/users/import']", "project"],
    ]) {
      await page.goto(house.origin + path);
      assert.equal(await page.locator(`${form} input[name=${field}][list]`).count(), 1, path);
      const options = await page.locator("main option").count();
      // The field's own, and the short lists of the page: roles, levels, times.
      assert.ok(options <= OFFERED + 30, `${path} has ${options} options`);
      assert.ok((await page.locator(`#${field}-offered option`).count()) <= OFFERED, path);
      assert.deepEqual(await violations(page), [], path);
      assert.equal(await overflow(page), 0, path);
    }
    assert.deepEqual(complaints, []);
    await context.close();
  });
}

test("what is typed offers what has it", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  for (const [path, form, field, far] of FORMS) {
    await page.goto(house.origin + path);
    const offered = () => page.locator(`#${field}-offered option`).evaluateAll((all) => all.map((one) => one.value));
    assert.ok(!(await offered()).includes(far), `${path} offers the last one at once`);
    await page.fill(`${form} [name=${field}]`, far);
    await until(() => `${path} offers ${far}`, async () => (await offered()).join() === far);
    await page.fill(`${form} [name=${field}]`, "nobody has this");
    await until(() => `${path} offers nothing`, async () => (await offered()).length === 0);
  }
  await page.goto(`${house.origin}/projects/lab-999`);
  await page.fill("[name=user]", "ki");
  await until(() => "a user is offered", async () => (await page.locator("#offered option").evaluateAll((all) => all.map((one) => one.value))).join() === "kim");
  // The launch form goes on with what was typed.
  await page.goto(`${house.origin}/sessions/new`);
  await page.fill("#project", "lab-999");
  await until(() => "the command has the project", async () => (await page.locator("#cli-line").innerText()).includes("--project lab-999"));
  await context.close();
});

for (const script of [true, false]) {
  test(`a value of nobody is told at its field and stays, ${script ? "with" : "without"} script`, async () => {
    const context = await signedIn({ javaScriptEnabled: script });
    const page = await context.newPage();
    for (const [path, form, field, , others, go] of FORMS) {
      await page.goto(house.origin + path);
      await fill(page, form, { ...others, [field]: "no-such" });
      await send(page, form, go, script);
      assert.deepEqual(await refused(page, form, field), { marked: "true", value: "no-such", focus: true, sentence: true }, path);
      for (const [name, value] of Object.entries(others)) {
        assert.equal(await page.inputValue(`${form} [name=${name}]`), value, `${path} keeps ${name}`);
      }
    }
    await context.close();
  });
}

test("a value that is typed in full is taken", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  for (const [path, form, field, far, others, go] of FORMS.slice(1)) {
    await page.goto(house.origin + path);
    await fill(page, form, { ...others, [field]: far });
    await send(page, form, go, true);
    assert.equal(await page.locator("main [aria-invalid=true]").count(), 0, path);
    assert.match(await page.locator("main").innerText(), new RegExp(far), path);
  }
  await context.close();
});
