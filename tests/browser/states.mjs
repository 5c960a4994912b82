// What stands behind a key or a click: every menu, popover, fold and dialog of every page, opened by keyboard and asked
// for accessibility in both languages and both themes. Every control of every page is reached with Tab, and without
// script no page shows a control that does nothing.
//
// Promise (Installation and console): Menus, dialogs and palette have no violation of accessibility rules when they are
// open, the keyboard reaches every control, and no page shows a dead control where there is no script.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { ALL, launch, listen, TURN, violations, violationsOf } from "./lib/browser.mjs";
import { open, setUp, until } from "./lib/house.mjs";

const LATER = new Date(Date.now() + 200 * 86_400_000).toISOString();
const PAIRS = [["en-US", "light"], ["en-US", "dark"], ["ko-KR", "light"], ["ko-KR", "dark"]];
// At night whatever opens is seen in each pair. Else it is seen once, with all that opens on its page in one pair: loading
// a page costs more than what opens there. Each commit turns the pages on, so that over the runs each page is seen in each.
const isSeen = (at, pair, turn = TURN, all = ALL) => all || (at + turn) % PAIRS.length === pair;
/// What was opened in each language.
const openedIn = { "en-US": new Set(), "ko-KR": new Set() };

let browser;
let house;
let state;
let pages;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  const run = (name, ...words) => {
    house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--name", name, ...words);
    return JSON.parse(house.command("session", "get", name, "-o", "json")).id;
  };
  const waits = run("waits", "--gpu", "0.35", "--start-at", LATER, "host", "--", "true");
  const over = run("over", "--start-at", LATER, "host", "--", "true");
  house.command("session", "stop", "over");
  const live = run("live", "--gpu", "0.5", "host", "--", "sleep", "3333");
  if (process.getuid() === 0) {
    await until(() => "it runs", async () => JSON.parse(house.command("session", "get", "live", "-o", "json")).state === "running");
  }
  const gpu = JSON.parse(house.command("gpu", "ls", "-o", "json")).items[0].id;
  pages = [
    "/", "/sessions", "/sessions/new", "/queue", "/gpus", `/gpus/${encodeURIComponent(gpu)}`, "/images", "/events", "/history",
    "/notices", "/users", "/me", "/nodes", "/groups", "/storage", "/system/checks", "/system/settings", "/system/webhooks", "/system/branding", "/system/backups", "/system/support",
    "/system/tls", "/about", "/docs", "/api/docs", `/sessions/${waits}`, `/sessions/${over}`, `/sessions/${live}`,
    `/sessions/${live}/logs`, `/sessions/${live}/metrics`, `/sessions/${live}/terminal`,
  ];
});

after(async () => {
  await browser?.close();
  await house?.close();
});

async function visitor(more) {
  return browser.newContext({ storageState: state, viewport: { width: 1440, height: 900 }, ...more });
}

/// What opens something on the page: its kind, and the place among its like.
const OPENERS = {
  popover: "[popovertarget]",
  fold: "main details > summary",
  dialog: "a[data-dialog]",
};

/// The openers of one kind on a page, one for each thing that they open, with the menu that they stand in.
function openers(page, selector) {
  return page.evaluate((selector) => {
    const seen = new Set();
    const shown = (element) => element?.checkVisibility({ visibilityProperty: true });
    return [...document.querySelectorAll(selector)].flatMap((element, at) => {
      const href = element.getAttribute("href")?.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "ID").replace(/=[^&]*/g, "=");
      const what = element.getAttribute("popovertarget") ?? href ?? element.textContent.trim().slice(0, 40);
      const menu = element.closest("[popover]")?.id;
      const through = menu && shown(document.querySelector(`[popovertarget="${menu}"]`)) ? menu : null;
      if (!(shown(element) || through) || menu === what || seen.has(what)) return [];
      seen.add(what);
      // The words of a fold may count something: it is called by where it stands.
      const place = element.closest("[id]");
      const own = what === element.textContent.trim().slice(0, 40) ? `${place.id} ${[...place.querySelectorAll("summary")].indexOf(element)}` : what;
      return [{ at, what, own, through }];
    });
  }, selector);
}

/// What lies above the page now.
const above = (page) => page.locator("[popover]:popover-open, dialog[open]");

/// Whether whatever lay above the page is closed again and the page is where it was: then the next thing can be opened
/// there.
async function isBack(page, path) {
  for (let pressed = 0; pressed < 3 && (await above(page).count()) > 0; pressed += 1) await page.keyboard.press("Escape");
  const { pathname, hash } = new URL(page.url());
  return pathname === path && hash === "" && (await above(page).count()) === 0;
}

describe("open states", () => {
  for (const [pair, [locale, colorScheme]] of PAIRS.entries()) {
    test(`${locale} ${colorScheme}, turn ${TURN % PAIRS.length}: whatever opens has no violation`, { timeout: 900_000 }, async () => {
      const context = await visitor({ locale, colorScheme });
      const page = await context.newPage();
      page.setDefaultTimeout(15_000);
      const complaints = listen(page);
      const opened = new Set();
      const told = [];
      // Movements of a third of a second: axe would see colours half way.
      const stand = () => page.evaluate(() => Promise.all(document.getAnimations()
      .filter((a) => Number.isFinite(a.effect.getComputedTiming().endTime))
      .map((a) => a.finished.catch(() => 0))));
      // What opened, and no more of the page: pages.mjs looks at the page around it.
      const look = async (where, part) => {
        await stand();
        for (const line of await violations(page, part)) told.push(`${where}: ${line}`);
      };
      for (const path of pages.filter((_, at) => isSeen(at, pair))) {
        await page.goto(house.origin + path);
        const folds = await openers(page, OPENERS.fold);
        // The folds of a page are opened one after the other and looked at together: the API's has two hundred.
        const parts = await page.evaluateHandle(() => []);
        for (const { at, what, own } of folds) {
          const opener = page.locator(OPENERS.fold).nth(at);
          const was = await opener.evaluate((e) => e.parentElement.open);
          let failed = null;
          // A part that the server sends in the same moment takes the focus away: a key is pressed again.
          for (let pressed = 0; pressed < 3; pressed += 1) {
            await opener.focus();
            await page.keyboard.press("Enter");
            failed = await page
              .waitForFunction(([s, at, was]) => document.querySelectorAll(s)[at]?.parentElement.open !== was, [OPENERS.fold, at, was], { timeout: 5_000 })
              .then(() => null, (error) => error);
            if (!failed) break;
          }
          if (failed) {
            told.push(`${path} fold ${own}: does not open: ${failed.message.split("\n")[0]}`);
            continue;
          }
          await opener.evaluate((e, parts) => parts.push(e.parentElement), parts);
          opened.add(`fold ${what}`);
        }
        if (await parts.evaluate((parts) => parts.length > 0)) {
          await stand();
          for (const line of await violationsOf(page, parts)) told.push(`${path} folds: ${line}`);
        }
        await parts.dispose();
        let fresh = folds.length === 0;
        for (const kind of ["popover", "dialog"]) {
          const selector = OPENERS[kind];
          if (!fresh) await page.goto(house.origin + path);
          fresh = true;
          for (const { what, own } of await openers(page, selector)) {
            const name = `${kind} ${what}`;
            // The menus of the frame are the same on each page.
            if (opened.has(name) && ["menu", "who"].includes(what)) continue;
            // Rows come and go while a page stands: what opens is looked up each time, in the end on a page that is loaded again.
            const lookUp = async () => (await openers(page, selector)).find((one) => one.own === own);
            let found = fresh ? await lookUp() : undefined;
            if (!found) {
              await page.goto(house.origin + path);
              found = await lookUp();
            }
            if (!found) {
              told.push(`${path} ${name}: is not there any more`);
              continue;
            }
            if (found.through) {
              await page.locator(`[popovertarget="${found.through}"]`).first().focus();
              await page.keyboard.press("Enter");
            }
            await page.locator(selector).nth(found.at).focus();
            await page.keyboard.press("Enter");
            const shown = {
              popover: page.locator(`[id="${what}"]:popover-open`),
              dialog: page.locator("dialog.question[open], main:has(.question h1)").first(),
            }[kind];
            try {
              await shown.waitFor();
            } catch (error) {
              told.push(`${path} ${name}: does not open: ${error.message.split("\n")[0]}`);
              fresh = false;
              continue;
            }
            await look(`${path} ${name}`, shown);
            opened.add(name);
            openedIn[locale].add(name);
            if (kind === "popover") {
              await page.keyboard.press("Escape");
              const still = await page.locator(`[id="${what}"]:popover-open`).count();
              if (still > 0) told.push(`${path} ${name}: Escape leaves it open`);
            }
            fresh = await isBack(page, path);
          }
        }
      }
      if (isSeen(0, pair)) {
        await page.goto(`${house.origin}/`);
        await page.keyboard.press("Control+k");
        await page.locator("#palette[open]").waitFor();
        await look("palette", page.locator("#palette"));
        await page.keyboard.type("waits");
        await page.locator("#palette [role=option]", { hasText: "waits" }).first().waitFor();
        await look("palette with answers", page.locator("#palette"));
        await page.goto(`${house.origin}/`);
        await page.keyboard.press("?");
        await page.locator("#sheet[open]").waitFor();
        await look("keys", page.locator("#sheet"));
      }
      await context.close();
      console.log(`${locale} ${colorScheme}: ${opened.size} kinds of what opens`);
      told.push(...complaints);
      assert.deepEqual(told, []);
    });
  }

  test("what has to open was opened in both languages, or once", () => {
    const wanted = ["popover who", "popover limits", "popover rename", "popover cancel", "popover more", "popover filter-help",
      "popover views", "popover columns", "popover templates", "popover cordon", "popover drain", "popover remove"];
    if (process.getuid() === 0) wanted.push("popover stop", "popover restart", "popover term-view");
    const once = new Set(Object.values(openedIn).flatMap((opened) => [...opened]));
    for (const [locale, opened] of ALL ? Object.entries(openedIn) : [["once", once]]) {
      assert.deepEqual(wanted.filter((name) => !opened.has(name)), [], `${locale}: ${[...opened].join(", ")}`);
    }
  });

  test("each turn looks at a page in one pair, and four turns in all of them", () => {
    for (const at of pages.keys()) {
      const seen = [0, 1, 2, 3].map((turn) => [0, 1, 2, 3].filter((pair) => isSeen(at, pair, turn, false)));
      assert.ok(seen.every((pairs) => pairs.length === 1), `page ${at}: ${seen}`);
      assert.deepEqual(seen.flat().sort(), [0, 1, 2, 3], `page ${at}`);
    }
  });
});

test("Tab reaches every control of every page", { timeout: 300_000 }, async () => {
  const context = await visitor({ locale: "en-US" });
  const page = await context.newPage();
  const told = [];
  for (const path of pages.filter((path) => !path.endsWith("/terminal"))) {
    await page.goto(house.origin + path);
    const count = await page.evaluate(() => {
      const of = "a[href], button, input:not([type=hidden]), select, textarea, summary, [contenteditable], [tabindex]";
      const all = [...document.querySelectorAll(of)].filter(
        (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && e.tabIndex >= 0 && !e.closest("dialog:not([open]), [inert]"),
      );
      globalThis.left = new Set(all);
      // Of the buttons of one choice Tab reaches the one that is chosen; arrows reach the others.
      for (const radio of all.filter((e) => e.type === "radio")) {
        const like = all.filter((e) => e.type === "radio" && e.name === radio.name && e.form === radio.form);
        if (like.some((e) => e.checked) ? !radio.checked : like[0] !== radio) globalThis.left.delete(radio);
      }
      document.addEventListener("focusin", ({ target }) => globalThis.left.delete(target));
      return globalThis.left.size;
    });
    // All sent at once: they arrive in their order, and an answer to each would cost more than the key.
    await Promise.all(Array.from({ length: count + 20 }, () => page.keyboard.press("Tab")));
    const left = await page.evaluate(() => [...globalThis.left].filter((e) => e.isConnected).map((e) => e.outerHTML.slice(0, 120)));
    told.push(...left.map((element) => `${path}: ${element}`));
  }
  await context.close();
  assert.deepEqual(told, []);
});

test("without script every page stands, and shows no control that does nothing", { timeout: 300_000 }, async () => {
  const context = await visitor({ locale: "en-US", javaScriptEnabled: false });
  const page = await context.newPage();
  const told = [];
  for (const path of pages) {
    const answer = await page.goto(house.origin + path);
    if (answer.status() !== 200) told.push(`${path}: ${answer.status()}`);
    if (!(await page.locator("h1").first().isVisible())) told.push(`${path}: no heading`);
    for (const button of await page.locator("button").all()) {
      if (!(await button.isVisible())) continue;
      const dead = await button.evaluate(
        (e) => !(e.form && e.type !== "button") && !e.hasAttribute("popovertarget") && !e.hasAttribute("commandfor"),
      );
      if (dead) told.push(`${path}: ${await button.evaluate((e) => e.outerHTML.slice(0, 120))}`);
    }
  }
  await context.close();
  assert.deepEqual(told, []);
});
