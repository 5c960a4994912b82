// Every page in every state that the renderer can show, in both languages, light and dark, on a desk
// and on a phone: no violation of accessibility, nothing refused by the strictest content security
// policy, nothing wider than the screen. The pages come from the renderer itself (FARDEL_PAGES_OUT),
// so states that this machine cannot reach, GPUs among them, are looked at too.
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

test("a run looks at a thing in both languages, themes and widths, and four turns look at it in all of them", () => {
  const names = Array.from({ length: 200 }, (_, at) => `/sessions/ID popover number-${at}`);
  const all = (key, seen) => [...new Set(seen.flatMap((look) => look[key]))].sort();
  for (const name of names) {
    const turns = [0, 1, 2, 3].map((turn) => looks(name, turn, false));
    for (const seen of turns) {
      assert.deepEqual(all("locale", seen), ["en-US", "ko-KR"], name);
      assert.deepEqual(all("colorScheme", seen), ["dark", "light"], name);
      assert.deepEqual(all("widths", seen), [1440, 390], name);
    }
    assert.equal(new Set(turns.flat().map((look) => JSON.stringify(look))).size, 8, name);
  }
  const dark = names.filter((name) => looks(name, 0, false)[0].colorScheme === "dark").length;
  assert.ok(dark > 50 && dark < 150, `${dark} of 200 are dark`);
});

// Each in a context of its own, and nothing but files behind them: two at once, on two cores.
describe("every page in every state", { concurrency: 2 }, () => {
  for (const language of languages) {
    for (const file of readdirSync(join(FOLDER, language)).sort()) {
      for (const { colorScheme, widths } of looks(file).filter(({ locale }) => locale.startsWith(language))) {
        test(`${language}/${file} ${colorScheme} ${widths}`, async () => {
          const context = await browser.newContext({ colorScheme, viewport: { width: 1440, height: 900 } });
          const page = await context.newPage();
          const complaints = listen(page);
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
          await context.close();
          assert.deepEqual(told, []);
        });
      }
    }
  }
});
