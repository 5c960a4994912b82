// An administrator announces something: a user sees it above every page and before sign-in, closes it, sees a changed
// one again, and it goes by itself.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, PERSON, setUp, until } from "./lib/house.mjs";

const TEXT = "No new sessions on Saturday from 08:00 to 10:00: <b>disks</b> are replaced.";
const KOREAN = "토요일 08시부터 10시까지 디스크를 바꾸느라 새 세션을 받지 않습니다.";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open();
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

const banner = (page, text) => page.locator(".announced .banner", { hasText: text });

test("an announcement is written, seen, closed, changed and removed", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/`);
  await page.click("nav >> text=Announcements");
  await page.locator(".empty", { hasText: "Nothing was announced" }).waitFor();
  assert.deepEqual(await violations(page), []);

  // What was refused stands at its field, and what was typed stays.
  await page.fill("#text_ko", KOREAN);
  await page.fill("#until", "2026-01-01T00:00");
  await page.click("button:has-text('Announce')");
  await page.locator("#text[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#text_ko"), KOREAN);
  await page.fill("#text", TEXT);
  await page.click("button:has-text('Announce')");
  await page.locator("#until[aria-invalid=true]").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#until", "");
  await page.selectOption("#level", "warning");
  await page.check("#before_sign_in");
  await page.click("button:has-text('Announce')");
  await page.locator("main [role=status]", { hasText: "was saved" }).waitFor();
  await page.locator("tbody tr", { hasText: "disks" }).waitFor();
  const shown = banner(page, TEXT);
  assert.equal(await shown.getAttribute("role"), "alert");
  assert.equal(await shown.locator("b").count(), 0, "no markup");
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);

  for (const path of ["/", "/sessions", "/queue", "/events", "/me", "/docs", "/no-such-page"]) {
    await page.goto(`${house.origin}${path}`);
    assert.equal(await banner(page, TEXT).count(), 1, `${path} shows it`);
  }
  // Closed it stays closed, on every page.
  await page.goto(`${house.origin}/queue`);
  await banner(page, TEXT).getByRole("button", { name: "Close announcement" }).click();
  assert.equal(await banner(page, TEXT).count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.goto(`${house.origin}/`);
  assert.equal(await banner(page, TEXT).count(), 0);

  // Another version is shown again.
  await page.goto(`${house.origin}/announcements`);
  await page.click("tbody a:has-text('disks')");
  await page.locator("h1", { hasText: "Change announcement" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.inputValue("#text"), TEXT);
  await page.fill("#text", `${TEXT}\nThen all is well.`);
  await page.click("button:has-text('Save')");
  await page.locator("main [role=status]", { hasText: "was changed" }).waitFor();
  await banner(page, "replaced. Then all is well.").waitFor();

  await page.goto(`${house.origin}/events?q=announcement`);
  await page.locator("tbody tr", { hasText: "Changed an announcement" }).waitFor();

  await page.goto(`${house.origin}/announcements`);
  await page.click("tbody td.act a");
  await page.locator("dialog", { hasText: "Remove this announcement?" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("dialog button:has-text('Remove announcement')");
  await page.locator("main [role=status]", { hasText: "was removed" }).waitFor();
  assert.equal(await page.locator(".announced").count(), 0);
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("who has not signed in sees it where it is meant for them, without script too, and in Korean", async () => {
  house.command("announcement", "create", TEXT, "--korean", KOREAN, "--level", "warning", "--until", "3d", "--before-sign-in");
  house.command("announcement", "create", "Only for users.");
  for (const [locale, javaScriptEnabled, text] of [["en-US", true, TEXT], ["ko-KR", true, KOREAN], ["en-US", false, TEXT]]) {
    const context = await browser.newContext({ locale, javaScriptEnabled, viewport: { width: 390, height: 844 } });
    const page = await context.newPage();
    await page.goto(`${house.origin}/login`);
    assert.equal(await banner(page, text).count(), 1);
    assert.equal(await banner(page, "Only for users.").count(), 0);
    if (javaScriptEnabled) {
      assert.deepEqual(await violations(page), []);
      assert.equal(await overflow(page), 0);
    } else {
      assert.equal(await banner(page, text).locator("button").isVisible(), false, "nothing closes it without script");
    }
    await page.fill("#name", PERSON.name);
    await page.fill("#password", PERSON.password);
    await Promise.all([page.waitForURL(`${house.origin}/`), page.click("form[action='/login'] button[type=submit]")]);
    assert.equal(await page.locator(".announced .banner:not([data-announced^=password-])").count(), 2);
    assert.match(await page.locator(".announced .banner").first().innerText(), new RegExp(text.slice(0, 12)));
    if (javaScriptEnabled) assert.equal(await overflow(page), 0);
    await page.goto(`${house.origin}/announcements`);
    if (javaScriptEnabled) {
      assert.deepEqual(await violations(page), []);
      assert.equal(await overflow(page), 0);
    }
    await context.close();
  }
});

test("it goes by itself, on an open page and on the next one", async () => {
  house.command("announcement", "create", "Gone in a moment.", "--until", "10s");
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/queue`);
  const gone = banner(page, "Gone in a moment.");
  assert.equal(await gone.count(), 1);
  await until(() => "it goes", async () => (await gone.count()) === 0);
  await page.reload();
  assert.equal(await gone.count(), 0);
  await page.goto(`${house.origin}/announcements`);
  await page.locator("tbody tr", { hasText: "Gone in a moment." }).filter({ hasText: "Over" }).waitFor();
  await context.close();
});

test("many of them are three and a link, on a phone, in Korean and before sign-in too", async () => {
  for (let n = 1; n <= 40; n += 1) house.command("announcement", "create", `Notice number ${n}`, "--before-sign-in");
  for (const [locale, storageState, path] of [["en-US", state, "/queue"], ["ko-KR", state, "/sessions"], ["ko-KR", undefined, "/login"]]) {
    const context = await browser.newContext({ storageState, locale, viewport: { width: 360, height: 740 } });
    const page = await context.newPage();
    const complaints = listen(page);
    await page.goto(`${house.origin}${path}`);
    assert.equal(await page.locator(".announced .banner").count(), 3);
    assert.equal(await banner(page, "Notice number 40").count(), 1, "the newest");
    assert.ok((await page.locator("main").boundingBox()).y < 600, "the page begins on the screen");
    assert.deepEqual(await violations(page), []);
    assert.equal(await overflow(page), 0);
    await banner(page, "Notice number 40").locator("button").click();
    await page.reload();
    assert.equal(await banner(page, "Notice number 40").count(), 0);
    assert.equal(await page.locator(".announced .banner").count(), 3);
    await page.click(".announced .all a");
    await page.waitForURL(`${house.origin}/announcements/current`);
    assert.ok((await page.locator(".told li").count()) >= 41, "all of them");
    assert.equal(await page.locator(".announced .banner").count(), 0);
    assert.deepEqual(await violations(page), []);
    assert.equal(await overflow(page), 0);
    await page.locator(".told li", { hasText: "Notice number 7" }).locator("button").click();
    await page.reload();
    const closed = page.locator(".told li", { hasText: "Notice number 7" });
    assert.equal(await closed.count(), 1, "it holds still");
    assert.equal(await closed.locator("button").count(), 0);
    assert.deepEqual(complaints, []);
    await context.close();
  }
});
