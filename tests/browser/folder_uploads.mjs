// Files on their way into a folder: a directory that is dropped, an upload that says how fast it is, waits and goes on, one
// whose larger pieces a proxy refuses, and tus-js-client as it is published, with a lost connection and a second beginning.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { drop, launch, listen, violations } from "./lib/browser.mjs";
import { addFolder, openWith, setUp, until } from "./lib/house.mjs";

const CLIENT = "tus-js-client";
let browser;
let house;
let state;
let place;
let mounted;
const files = mkdtempSync(join(tmpdir(), "fardel-uploads-"));

before(async () => {
  mkdirSync(join(files, "run 100%/deep/empty"), { recursive: true });
  writeFileSync(join(files, "run 100%/a.txt"), "a");
  for (let number = 0; number < 150; number += 1) writeFileSync(join(files, `run 100%/deep/${number}`), `${number}`);
  writeFileSync(join(files, "large.bin"), Buffer.alloc(40 << 20, "0123456789abcdef"));
  writeFileSync(join(files, "proxied.bin"), Buffer.alloc(40 << 20, "fedcba9876543210"));
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  ({ place, mounted } = await addFolder(page, house, "data"));
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(files, { recursive: true, force: true });
});

test("a directory that is dropped comes with all below it", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(place);
  await drop(page, join(files, "run 100%"));
  await page.locator("[role=status]", { hasText: "Files uploaded: 151" }).first().waitFor({ timeout: 40_000 });
  await page.locator("td a.nm", { hasText: "run 100%" }).waitFor();
  assert.equal(readFileSync(join(mounted, "run 100%/a.txt"), "utf8"), "a");
  assert.ok(existsSync(join(mounted, "run 100%/deep/empty")), "a directory without files");
  for (const number of [0, 99, 149]) assert.equal(readFileSync(join(mounted, `run 100%/deep/${number}`), "utf8"), `${number}`);
  // What is there already is refused: the directory above one without files.
  assert.deepEqual(complaints.filter((line) => !/409/.test(line)), []);
  await context.close();
});

test("an upload says how fast it is and what is left, waits, and goes on where it was", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const offsets = [];
  await page.route("**/api/v1/folders/*/uploads/*", async (route) => {
    const request = route.request();
    if (request.method() !== "PATCH") return route.continue();
    offsets.push(Number(request.headers()["upload-offset"]));
    // So long that no larger piece follows.
    await new Promise((done) => setTimeout(done, 2200));
    // One that its user paused is there no more.
    return route.continue().catch(() => {});
  });
  await page.goto(place);
  await page.setInputFiles("#files", join(files, "large.bin"));
  await page.click("#upload button:has-text('Upload')");
  const row = page.locator(".sending li", { hasText: "large.bin" });
  await row.locator("span", { hasText: /of 40\.0 MiB · .* a second, .* left/ }).waitFor();
  await until(() => `a second piece after ${offsets}`, async () => offsets.length === 2);
  await row.locator("button", { hasText: "Pause" }).click();
  await row.locator("span", { hasText: "paused" }).waitFor();
  assert.deepEqual(await violations(page, page.locator("#upload")), []);
  const before = offsets.length;
  await page.waitForTimeout(1500);
  assert.equal(offsets.length, before, "nothing is sent while it waits");
  await row.locator("button", { hasText: "Resume" }).click();
  await page.locator("td a.nm", { hasText: "large.bin" }).waitFor({ timeout: 40_000 });
  assert.ok(offsets.slice(2).every((offset) => offset >= 16 << 20), `${offsets}`);
  assert.ok(readFileSync(join(mounted, "large.bin")).equals(readFileSync(join(files, "large.bin"))));
  await context.close();
});

test("a larger piece that a proxy refuses is sent in smaller ones", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  // Each piece comes quickly, on a busy machine too, so that the next one is larger.
  await page.addInitScript(() => {
    const now = performance.now.bind(performance);
    performance.now = () => now() / 100;
  });
  const offsets = [];
  await page.route("**/api/v1/folders/*/uploads/*", (route) => {
    const request = route.request();
    if (request.method() !== "PATCH") return route.continue();
    offsets.push(Number(request.headers()["upload-offset"]) >> 20);
    if (offsets.length !== 2) return route.continue();
    return route.fulfill({ status: 413, contentType: "text/html", body: "<h1>413 Request Entity Too Large</h1>" });
  });
  await page.goto(place);
  await page.setInputFiles("#files", join(files, "proxied.bin"));
  await page.click("#upload button:has-text('Upload')");
  await page.locator("td a.nm", { hasText: "proxied.bin" }).waitFor({ timeout: 40_000 });
  assert.deepEqual(offsets, [0, 16, 16, 32]);
  assert.ok(readFileSync(join(mounted, "proxied.bin")).equals(readFileSync(join(files, "proxied.bin"))));
  await context.close();
});

test("tus-js-client sends as it is published, over a lost connection and a second beginning", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const entry = createRequire(import.meta.url).resolve(CLIENT);
  const client = entry.slice(0, entry.lastIndexOf(CLIENT) + CLIENT.length);
  const methods = [];
  let lost = 0;
  await page.route("**/api/v1/folders/*/uploads/**", (route) => {
    const method = route.request().method();
    methods.push(method);
    if (method === "PATCH" && lost === 0) {
      lost += 1;
      return route.abort("connectionreset");
    }
    return route.continue();
  });
  await page.goto(place);
  // Through the debugger: the page's own policy refuses foreign scripts.
  await page.evaluate(readFileSync(join(client, "dist", "tus.min.js"), "utf8"));
  const endpoint = `${house.origin}/api/v1/folders/${new URL(place).pathname.split("/")[2]}/uploads`;
  const { sum, size } = await page.evaluate(async (endpoint) => {
    const bytes = new Uint8Array(11 << 20);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = (at * 31) % 251;
    const file = new File([bytes], "tus.bin", { lastModified: 1_700_000_000_000 });
    const upload = (options) => new globalThis.tus.Upload(file, {
      endpoint,
      chunkSize: 2 << 20,
      retryDelays: [0, 100, 500],
      uploadDataDuringCreation: true,
      metadata: { filename: file.name, path: "by tus", mtime: String(file.lastModified) },
      ...options,
    });
    // The first is called off in the middle.
    await new Promise((done, fail) => {
      const first = upload({ onError: fail, onProgress: (sent) => { if (sent > 6 << 20) first.abort().then(done, fail); } });
      first.start();
    });
    // The second finds it, and sends the rest.
    await new Promise((done, fail) => {
      const second = upload({ onError: fail, onSuccess: done });
      second.findPreviousUploads().then((known) => {
        if (known.length !== 1) throw new Error(`${known.length} known uploads`);
        second.resumeFromPreviousUpload(known[0]);
        second.start();
      }).catch(fail);
    });
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return { sum: [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join(""), size: bytes.length };
  }, endpoint);
  assert.equal(lost, 1);
  assert.ok(methods.includes("HEAD"), `${methods}`);
  const told = await page.request.get(`${endpoint.replace(/uploads$/, "files")}?path=by%20tus/tus.bin&sha256=true`);
  const { sha256, size: kept } = await told.json();
  assert.deepEqual({ sha256, kept }, { sha256: sum, kept: size });
  await context.close();
});
