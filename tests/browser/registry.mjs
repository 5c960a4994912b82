// Pulling an image of another registry with the page alone: a host that is not listed is refused at its field, a registry
// that does not answer is named in the list of imports; the same without script.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp, until } from "./lib/house.mjs";

// No program listens there.
const DEAD = "127.0.0.1:9";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({ FARDEL_REGISTRIES: `http://${DEAD}` });
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
  test(`a pull that is refused stands at its field, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await browser.newContext({ storageState: state, locale, javaScriptEnabled: script });
    const page = await context.newPage();
    await page.goto(`${house.origin}/images`);
    const card = page.locator("#pull");
    assert.match(await card.innerText(), new RegExp(DEAD));
    for (const image of ["elsewhere.example/tiny:1", "no image"]) {
      await page.fill("#pull-image", image);
      await Promise.all([page.waitForEvent("framenavigated"), page.click("#pull button.pri")]);
      await page.locator("#fault-image").waitFor();
      const said = await page.locator("#fault-image").innerText();
      assert.match(said, locale === "ko-KR" ? /[가-힣]/ : /[a-z]{3}/);
      assert.equal(await page.inputValue("#pull-image"), image);
    }
    if (script) {
      assert.deepEqual(await violations(page), []);
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await overflow(page), 0);
    }
    // Images are unpacked by root alone, and only then a pull begins.
    if (process.getuid() === 0) {
      const image = `${DEAD}/${locale.toLowerCase()}-${script}:1`;
      await page.fill("#pull-image", image);
      await Promise.all([page.waitForEvent("framenavigated"), page.click("#pull button.pri")]);
      await until(() => "the list names the pull and why it failed", async () => {
        if (!script) await page.goto(`${house.origin}/images`);
        const row = page.locator("#jobs li", { hasText: image });
        return (await row.count()) > 0 && (await row.innerText()).includes("/etc/hosts");
      });
    }
    await context.close();
  });
}
