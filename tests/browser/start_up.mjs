// What a user's sessions start with, by the pages alone: a dotfile, a script and a variable are kept, changed and removed, and
// the value of the variable is on no page.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp } from "./lib/house.mjs";

const SECRET = "hunter2-of-a-browser";
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

for (const javaScriptEnabled of [true, false]) {
  test(`sessions start with what is kept, ${javaScriptEnabled ? "with" : "without"} script`, async () => {
    const context = await browser.newContext({ storageState: state, javaScriptEnabled });
    const page = await context.newPage();
    await page.goto(`${house.origin}/me`);
    await page.click("a[href='/me/startup']");
    await page.fill("#path", "~/.config/tool/rc");
    await page.fill("#mode", "644");
    await page.fill("#content", "color = on\nlines = 3");
    await page.click("form[action='/me/startup/dotfiles'] button");
    const file = page.locator("a.nm", { hasText: ".config/tool/rc" });
    await file.click();
    assert.equal(await page.inputValue("#content"), "color = on\nlines = 3");
    assert.equal(await page.inputValue("#mode"), "644");

    await page.fill("#script", "echo begun");
    await page.check("#ends_session");
    await page.click("form[action='/me/startup/script'] button");
    assert.equal(await page.inputValue("#script"), "echo begun");
    assert.equal(await page.isChecked("#ends_session"), true);

    await page.fill("#name", "WANDB_API_KEY");
    await page.fill("#value", SECRET);
    await page.click("form[action='/me/startup/variables'] button");
    await page.locator("span.nm", { hasText: "WANDB_API_KEY" }).waitFor();
    assert.ok(!(await page.content()).includes(SECRET));
    for (const path of ["dotfiles", "startup-script", "variables"]) {
      const answer = await context.request.get(`${house.origin}/api/v1/me/${path}`);
      assert.ok(!(await answer.text()).includes(SECRET), path);
    }

    for (const kind of ["kind=dotfile", "kind=script", "kind=variable"]) {
      await page.click(`a[href*='/me/startup/remove?${kind}']`);
      await page.click("form[action='/me/startup/remove'] button[type='submit'], form[action='/me/startup/remove'] button:not([type])");
      await page.locator(`a[href*='/me/startup/remove?${kind}']`).waitFor({ state: "detached" });
    }
    await context.close();
  });
}

test("the page fits a phone, breaks no rule of access and no policy", async () => {
  const context = await browser.newContext({ storageState: state, viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  const heard = listen(page);
  await page.goto(`${house.origin}/me/startup`);
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(heard, []);
  await context.close();
});
