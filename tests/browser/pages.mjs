// Every page in every state that the renderer can show, in both languages, light and dark, on a desk
// and on a phone (`looks` says in which of them one run asks axe): no violation of accessibility, nothing refused by the
// strictest content security policy, nothing wider than the screen. The pages come from the renderer itself
// (FARDEL_PAGES_OUT), so states that this machine cannot reach, GPUs among them, are looked at too.
//
// Promise (Installation and console): Every page, in both languages and in all themes and sizes, has no
// violation of accessibility rules or of the content security policy.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch, listen, looks, overflow, violations } from "./lib/browser.mjs";

const FOLDER = process.env.FARDEL_PAGES;
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css",
  ".js": "text/javascript",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
};
/// The console's policy; only a page with a terminal has a nonce in it.
function policy(html) {
  const nonce = html.match(/<meta name="fardel-nonce" content="([^"]+)"/)?.[1];
  const styles = nonce ? `'self' 'nonce-${nonce}'` : "'self'";
  return (
    `default-src 'none'; script-src 'self'; style-src ${styles}; img-src 'self' data: blob:; font-src 'self'; ` +
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
  );
}

let browser;
let server;
let origin;

before(async () => {
  assert.ok(FOLDER, "FARDEL_PAGES names the folder with the rendered pages");
  browser = await launch();
  server = createServer((request, response) => {
    const path = new URL(request.url, "http://here").pathname;
    if (path === "/blank.html") {
      response.writeHead(200, { "content-type": TYPES[".html"] }).end("<!doctype html><title>blank</title>");
      return;
    }
    const file = join(FOLDER, path);
    if (!file.startsWith(FOLDER) || !extname(file) || !existsSync(file)) {
      // Live streams and previews have nobody behind them here; 204 ends them without a complaint.
      response.writeHead(204).end();
      return;
    }
    const bytes = readFileSync(file);
    response.writeHead(200, {
      "content-type": TYPES[extname(file)] ?? "application/octet-stream",
      "content-security-policy": policy(extname(file) === ".html" ? bytes.toString() : ""),
    });
    response.end(bytes);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  origin = `http://127.0.0.1:${server.address().port}`;
});

after(async () => {
  await browser?.close();
  server?.closeAllConnections();
  server?.close();
});

const languages = FOLDER ? readdirSync(FOLDER).filter((name) => name.length === 2) : [];

test("the renderer wrote pages in both languages", () => {
  assert.deepEqual(languages.sort(), ["en", "ko"]);
});

test("a run opens a thing in both languages and themes and asks axe once, and eight turns ask in all of them", () => {
  const names = Array.from({ length: 200 }, (_, at) => `/sessions/ID popover number-${at}`);
  const all = (key, seen) => [...new Set(seen.map((look) => look[key]))].sort();
  for (const name of names) {
    const turns = Array.from({ length: 8 }, (_, turn) => looks(name, turn, false));
    for (const seen of turns) {
      assert.deepEqual(all("locale", seen), ["en-US", "ko-KR"], name);
      assert.deepEqual(all("colorScheme", seen), ["dark", "light"], name);
      assert.equal(seen.flatMap((look) => look.widths).length, 1, name);
    }
    const asked = turns.flat().filter((look) => look.widths.length > 0);
    assert.equal(new Set(asked.map((look) => JSON.stringify(look))).size, 8, name);
    const atNight = looks(name, 0, true);
    assert.equal(new Set(atNight.map((look) => JSON.stringify(look))).size, 4, name);
    assert.ok(atNight.every((look) => look.widths.length === 2), name);
  }
  const count = (is) => names.filter((name) => is(looks(name, 0, false))).length;
  for (const is of [([first]) => first.colorScheme === "dark", ([first]) => first.widths.length > 0, (seen) => seen.some((look) => look.widths.includes(390))]) {
    assert.ok(count(is) > 50 && count(is) < 150, `${count(is)} of 200: ${is}`);
  }
});

/// Pages of the browser that are free: a new one costs three times what opening a file in it costs.
const free = [];

/// A page that has nothing of what was opened in it before, and what the browser complains about from now on.
async function freePage() {
  const kept = free.pop();
  if (kept) return kept;
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  await context.addInitScript(() => {
    try {
      localStorage.clear();
      sessionStorage.clear();
    } catch { /* a frame without an origin has none */ }
  });
  const page = await context.newPage();
  return { page, complaints: listen(page) };
}

// Nothing but files behind them: two at once, on two cores.
describe("every page in every state", { concurrency: 2 }, () => {
  for (const language of languages) {
    for (const file of readdirSync(join(FOLDER, language)).sort()) {
      for (const { colorScheme, widths } of looks(file).filter(({ locale }) => locale.startsWith(language))) {
        test(`${language}/${file} ${colorScheme} ${widths.join() || "opened"}`, async () => {
          const visitor = await freePage();
          const { page, complaints } = visitor;
          // What the last file still does ends with it; its complaints are not this one's.
          await page.goto(`${origin}/blank.html`);
          complaints.length = 0;
          await page.setViewportSize({ width: 1440, height: 900 });
          await page.emulateMedia({ colorScheme });
          await page.goto(`${origin}/${language}/${file}`, { waitUntil: "load" });
          const told = [];
          for (const width of [1440, 820, 390]) {
            await page.setViewportSize({ width, height: 900 });
            const wide = await overflow(page);
            if (wide > 0) told.push(`${width} px: ${wide} px too wide`);
            if (widths.includes(width)) {
              told.push(...(await violations(page)).map((line) => `${width} px: ${line}`));
            }
          }
          // The terminal has no session behind it here; journeys.mjs looks at it with a real session.
          told.push(...complaints.filter((line) => !line.startsWith("WebSocket connection")));
          free.push(visitor);
          assert.deepEqual(told, []);
        });
      }
    }
  }
});
