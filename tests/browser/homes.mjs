// A home and a dot-folder that each session has by itself, with the pages alone: a launch has them, the tick leaves them out, and
// the page of a session says what it mounts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({ FARDEL_HOMES: "true" });
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await setUp(page, house);
  await page.goto(`${house.origin}/folders`);
  await page.fill("#name", ".cache");
  await page.click("form[action='/folders'] button");
  await page.locator("a.nm", { hasText: ".cache" }).waitFor();
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

for (const javaScriptEnabled of [true, false]) {
  const word = javaScriptEnabled ? "with" : "without";
  test(`a session has a home unless its launch says no, ${word} script`, async () => {
    const context = await browser.newContext({ storageState: state, locale: "en-US", javaScriptEnabled });
    const page = await context.newPage();
    const begin = async (name, isBare) => {
      await page.goto(`${house.origin}/sessions/new`);
      await page.fill("#name", name);
      if (isBare) {
        await page.locator("details.fold:has(#without_home) > summary").click();
        await page.check("#without_home");
        if (javaScriptEnabled) await page.locator("#cli-line", { hasText: "--no-home" }).waitFor();
      }
      await page.click("button[name=act][value=launch]");
      await page.locator("h1", { hasText: name }).waitFor();
      const answer = await context.request.get(`${house.origin}/api/v1/sessions/${name}`);
      return (await answer.json()).mounts.map((mount) => mount.at);
    };
    assert.deepEqual(await begin(`home-${word}`, false), ["/home/work", "/home/work/.cache"]);
    assert.ok((await page.content()).includes("mounted in all sessions of its owner"));
    assert.deepEqual(await begin(`bare-${word}`, true), []);
    await context.close();
  });
}

test("the launch form with its tick fits a phone and breaks no rule of access", async () => {
  const context = await browser.newContext({ storageState: state, viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  const heard = listen(page);
  await page.goto(`${house.origin}/sessions/new`);
  await page.locator("details.fold:has(#without_home) > summary").click();
  await page.locator("#without_home").waitFor();
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(heard, []);
  await context.close();
});
