// Volumes with the page alone: there are none yet, a directory that nothing is mounted on is refused at its field and keeps
// what was typed, in both languages, and without script.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["ko-KR", false]]) {
  test(`a volume that is not mounted is refused at its field, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await browser.newContext({ storageState: state, locale, javaScriptEnabled: script });
    const page = await context.newPage();
    await page.goto(`${house.origin}/storage`);
    assert.equal(await page.locator("ul.att li").count(), 0);
    for (const path of ["/no-such-directory", "relative"]) {
      await page.fill("#name", "big");
      await page.fill("#path", path);
      await Promise.all([page.waitForEvent("framenavigated"), page.click("main button.pri")]);
      await page.locator("#fault-path").waitFor();
      const said = await page.locator("#fault-path").innerText();
      assert.match(said, locale === "ko-KR" ? /[가-힣]/ : /[a-z]{3}/);
      assert.equal(await page.inputValue("#path"), path);
      assert.equal(await page.inputValue("#name"), "big");
    }
    if (script) {
      assert.deepEqual(await violations(page), []);
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await overflow(page), 0);
    }
    await context.close();
  });
}

test("administrators see what users take, and owners what a backup holds", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/folders`);
  assert.match(await page.locator("main").innerText(), /none of their files/);
  await page.fill("#name", "data");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("main button.pri")]);
  await page.goto(`${house.origin}/storage`);
  assert.equal(await page.locator("section[aria-labelledby=v2] li").count(), 1);
  assert.match(await page.locator("section[aria-labelledby=v3]").innerText(), /none of their files/);
  assert.match(await page.locator("section[aria-labelledby=v0]").innerText(), /[Ll]imit/, "how limits are held is told");
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  assert.equal(await overflow(page), 0);
  await context.close();
});
