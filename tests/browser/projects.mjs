// Projects with the pages alone: create one, refuse wrong values at their fields, add and remove members, archive and
// restore, and choose a project at launch; in both languages, and without script.
//
// Proves too: `tests/browser/administration.mjs`

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { focusGiven, launch, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp } from "./lib/house.mjs";

let browser;
let house;
let folder;
let state;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "fardel-projects-"));
  browser = await launch();
  house = await openWith({}, "--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  for (const name of ["jae", "kim"]) house.command("user", "add", name, "--password-file", password);
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = (options = {}) => browser.newContext({ storageState: state, locale: "en-US", ...options });

/// Sends a form past the browser's own checks.
async function send(page, action) {
  await Promise.all([
    page.waitForEvent("framenavigated"),
    page.locator(`form[action='${action}'] button.btn`).first().click(),
  ]);
  await page.waitForLoadState("load");
}

/// The field that is marked as wrong, its value, and whether it has the focus and a sentence.
const refused = async (page) => {
  await focusGiven(page);
  return page.evaluate(() => {
    const control = document.querySelector("main [aria-invalid=true]");
    if (!control) return null;
    const note = document.getElementById((control.getAttribute("aria-describedby") ?? "").split(" ")[0]);
    return {
      field: control.name,
      value: control.value,
      focus: document.activeElement === control,
      sentence: (note?.textContent ?? "").trim().length > 5,
    };
  });
};

for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["en-US", false]]) {
  test(`wrong values stand at their fields, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await signedIn({ locale, javaScriptEnabled: script });
    const page = await context.newPage();
    for (const [path, action, field, value] of [
      ["/projects/new", "/projects/new", "name", "Not A Name"],
      ["/projects/new", "/projects/new", "name", "default"],
      ["/projects/default", "members", "user", "nobody"],
    ]) {
      await page.goto(house.origin + path);
      const form = page.locator(`form[action$='${action}']`).first();
      await form.locator(`[name=${field}]`).fill(value);
      await send(page, await form.getAttribute("action"));
      // Without script nothing can ask where the focus is but the markup, and evaluate needs none of the page's own.
      assert.deepEqual(await refused(page), { field, value, focus: true, sentence: true }, `${path} ${value}`);
    }
    await context.close();
  });
}

test("a project is created, filled, archived and restored", async () => {
  const context = await signedIn();
  const page = await context.newPage();
  await page.goto(`${house.origin}/projects`);
  await page.click("text=Create project");
  await page.fill("[name=name]", "vision-lab");
  await page.fill("[name=title]", "Vision Lab");
  await send(page, "/projects/new");
  assert.equal(await page.locator("h1").innerText(), "Vision Lab");
  const members = await page.locator("form[action$='/members']").getAttribute("action");
  for (const [name, role] of [["jae", "member"], ["kim", "lead"], [PERSON.name, "member"]]) {
    await page.fill("[name=user]", name);
    await page.selectOption("[name=role]", role);
    await send(page, members);
  }
  const rows = page.locator("#list tbody tr");
  assert.equal(await rows.count(), 3);
  assert.match(await rows.filter({ hasText: "kim" }).innerText(), /Lead/);
  await rows.filter({ hasText: "jae" }).locator("td.act a").click();
  await page.locator("form[action*='/members/'] button.btn").first().click();
  await page.waitForFunction(() => document.querySelectorAll("#list tbody tr").length === 2);
  for (const pill of [1, 0]) {
    await page.locator(".head .act a[href$='/state']").click();
    await page.locator("form[action$='/state'] button.btn").first().click();
    await page.waitForFunction(
      ([pill]) => location.pathname.startsWith("/projects/") && document.querySelectorAll("h1 .pill").length === pill,
      [pill],
    );
  }
  await page.goto(`${house.origin}/sessions/new`);
  const offered = await page.locator("[name=project] option").allInnerTexts();
  assert.deepEqual(offered.sort(), ["Vision Lab", "default"]);
  await context.close();
});

for (const [locale, colorScheme, width] of [["en-US", "light", 1440], ["ko-KR", "dark", 390]]) {
  test(`the pages are accessible and fit, ${locale} ${colorScheme} ${width}`, async () => {
    const context = await signedIn({ locale, colorScheme, viewport: { width, height: 900 } });
    const page = await context.newPage();
    for (const path of ["/projects", "/projects/new", "/projects/default"]) {
      await page.goto(house.origin + path);
      assert.deepEqual(await violations(page), [], path);
      assert.equal(await overflow(page), 0, path);
    }
    await context.close();
  });
}
