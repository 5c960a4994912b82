// How a newcomer gets in and finds help: setup, the wizard and the sign-in tell every fault at its field; the manual
// and the reference of the API break no rule of accessibility in either language or theme.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ALL, launch, listen, TURN, violations } from "./lib/browser.mjs";
import { open, PERSON, until } from "./lib/house.mjs";

const TASTES = ["en-US", "ko-KR"].flatMap((locale) => ["light", "dark"].map((colorScheme) => ({ locale, colorScheme })));

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
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

const focused = (page) => page.evaluate(() => document.activeElement?.id);

test("setup tells every fault at once, at its field, and the focus goes there", async () => {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(await house.setupLink());
  assert.equal(await focused(page), "name", "the code is filled in, so the name is next");
  assert.equal(await page.locator("a[href='/trust']").count(), 0, "plain HTTP has no certificate to warn of");
  await page.fill("#password", "short");
  await page.fill("#again", "shorter");
  await page.click("form[action='/setup'] button[type=submit]");
  await page.locator(".fault").first().waitFor();
  const faults = await page.locator(".fault").evaluateAll((all) => all.map((fault) => fault.dataset.fault));
  assert.deepEqual(faults, ["name", "password", "again"]);
  assert.equal(await focused(page), "name");
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", PERSON.name);
  await page.fill("#password", PERSON.password);
  await page.fill("#again", PERSON.password);
  await Promise.all([page.waitForURL("**/setup/time"), page.click("form[action='/setup'] button[type=submit]")]);
  state = await context.storageState();
  await context.close();
});

test("the wizard keeps the zone, skips what there is nothing to do about, and ends with what is next", async () => {
  const { context, page } = await visit("/setup/time");
  assert.equal(await page.locator(".stairs a[href='/setup/certificate']").count(), 0, "no certificate, no step");
  assert.doesNotMatch(await page.locator("main").innerText(), /set-time '\d/, "a sample that sets a wrong time");
  // Next stands at the same side on every step.
  const side = () => page.locator(".onward .btn:not(.gh)").evaluate((next) => {
    const [row, button] = [next.closest(".onward").getBoundingClientRect(), next.getBoundingClientRect()];
    return Math.round(row.right - button.right);
  });
  assert.equal(await side(), 0);
  await page.selectOption("#zone", "Asia/Seoul");
  assert.equal(await page.locator(".btn.pri:visible").count(), 1);
  await Promise.all([page.waitForURL("**/setup/environment"), page.click(".onward .btn:not(.gh)")]);
  const zone = (await context.cookies()).find((cookie) => cookie.name.endsWith("fardel_zone"));
  assert.match(decodeURIComponent(zone.value), /Asia\/Seoul/, "Next keeps the chosen zone");
  assert.equal(await page.locator(".btn.pri:visible").count(), 1);
  assert.equal(await side(), 0);
  assert.match(await page.locator("p.lead").innerText(), /called host, or a container image/, "what an environment is");
  await Promise.all([page.waitForURL("**/setup/test"), page.click(".onward .btn:not(.gh)")]);
  assert.equal(await page.locator(".btn.pri:visible").count(), 1, "the test is the one thing to do");
  await Promise.all([page.waitForURL("**/setup/report"), page.click(".onward .btn:not(.gh)")]);
  const tasks = await page.locator(".tasks a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
  for (const href of ["/sessions/new", "/images", "/users", "/system/backups", "/gpus", "/docs"]) assert.ok(tasks.includes(href), `${href} in ${tasks}`);
  assert.match(await page.locator("main").innerText(), /2 × .*H100.*simulated/);
  assert.match(await page.locator("main").innerText(), /Installation ID\s+[0-9a-f]{8}-/);
  assert.match(await page.locator("main").innerText(), /Images\s+none imported yet; import them on the page Images/);
  assert.equal(await page.locator(".way").count(), 0, "nothing is left to finish later");
  assert.deepEqual(await violations(page), []);
  await Promise.all([page.waitForURL(`${house.origin}/`), page.click(".onward .btn.pri")]);
  await context.close();
});

test("a wrong sign-in is told at its field, the name stays and the focus is on the password", async () => {
  const context = await browser.newContext({ locale: "ko-KR", javaScriptEnabled: true });
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  assert.equal(await focused(page), "name");
  assert.match(await page.locator("main").innerText(), /fardel user passwd 이름/);
  await page.click("form[action='/login'] button[type=submit]");
  await page.locator("[data-fault=name]").waitFor();
  assert.equal(await page.locator(".fault").count(), 2, "both empty fields at once");
  await page.fill("#name", PERSON.name);
  await page.fill("#password", "not the password");
  await page.click("form[action='/login'] button[type=submit]");
  await page.locator("[data-fault=password]", { hasText: "사용자 이름이나 비밀번호가 틀렸습니다" }).waitFor();
  assert.equal(await page.inputValue("#name"), PERSON.name);
  assert.equal(await focused(page), "password");
  assert.deepEqual(await violations(page), []);
  await context.close();
});

test("the manual and the reference break no rule, and a request can be copied whole", async () => {
  const told = [];
  for (const taste of TASTES) {
    const { context, page, complaints } = await visit("/docs", taste);
    const chapters = await page.locator(".toc a.it").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
    assert.ok(chapters.length > 12, `${chapters}`);
    // Every page is seen in one of the four tastes, in another one each turn, and at night in all.
    const all = [...chapters, "/docs?q=gpu", "/api/docs/LaunchRequest", "/about"];
    for (const path of all.filter((_, at) => ALL || (at + TURN) % TASTES.length === TASTES.indexOf(taste))) {
      await page.goto(house.origin + path);
      told.push(...(await violations(page)).map((line) => `${path} ${taste.locale} ${taste.colorScheme}: ${line}`));
    }
    told.push(...complaints);
    await context.close();
  }
  assert.deepEqual(told, []);

  const { context, page } = await visit("/api/docs", { permissions: ["clipboard-read", "clipboard-write"] });
  const row = page.locator("#launch");
  assert.match(await row.locator("summary").first().innerText(), /\/api\/v1\/sessions.*\S/s);
  await row.locator("summary").first().click();
  await row.locator("button[data-copy]").click();
  const copied = await until(() => "a copied request", () => page.evaluate(() => navigator.clipboard.readText()));
  assert.match(copied, /^curl -X POST[\s\S]*"image":"host"[\s\S]*\/api\/v1\/sessions"$/);
  assert.ok(await page.evaluate(() => [...document.querySelectorAll(".shell pre")].every((pre) => pre.scrollWidth <= pre.clientWidth)), "a request is cut off");
  // The one that is open: journeys.mjs looks at the page around it.
  assert.deepEqual(await violations(page, row), []);
  await page.goto(`${house.origin}/docs/gpus`);
  const sections = await page.locator(".parts a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
  assert.ok(sections.length >= 3 && sections.includes("#ask"), `${sections}`);
  for (const id of sections) assert.equal(await page.locator(id).count(), 1, id);
  await context.close();
});

test("every link of the manual leads to a page", async () => {
  const { context } = await visit("/docs");
  const links = async (path) => {
    const text = await (await context.request.get(house.origin + path)).text();
    const main = text.slice(text.indexOf("<main"), text.indexOf("</main>"));
    return new Set([...main.matchAll(/href="(\/[^"#?]*)/g)].map(([, href]) => href));
  };
  const chapters = [...(await links("/docs"))].filter((href) => href.startsWith("/docs/"));
  assert.ok(chapters.length > 25, `${chapters}`);
  const all = new Map();
  for (const chapter of chapters) for (const href of await links(chapter)) all.set(href, chapter);
  const dead = [];
  for (const [href, chapter] of all) {
    const answer = await context.request.get(house.origin + href);
    if (answer.status() !== 200) dead.push(`${href} in ${chapter}: ${answer.status()}`);
  }
  assert.deepEqual(dead, []);
  await context.close();
});
