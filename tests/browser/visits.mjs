// What a visit costs: bytes of a first visit to the sign-in page and the overview, and of the next one, in both
// languages.
//
// Promise (Installation and console): A first visit carries at most 130 KB in English and in Korean, the next one 15 KB.

import assert from "node:assert/strict";
import { loadavg } from "node:os";
import { after, before, test } from "node:test";
import { launch } from "./lib/browser.mjs";
import { client, firstUser, holder, queue } from "./lib/crowd.mjs";
import { open, signIn } from "./lib/house.mjs";

const FIRST_VISIT = 130_000;
const NEXT_VISIT = 15_000;

const load = () => `load ${loadavg()[0].toFixed(2)}`;

let browser;
let house;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:4");
  const cookie = await firstUser(house.origin, await house.setupLink());
  const cores = await holder(house, cookie);
  await queue([client(house.origin, cookie)], 12, cores - 0.5);
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// Bytes that a page receives while `act` runs, with headers, as the browser counts them; and what they were.
async function received(context, act) {
  const page = await context.newPage();
  const debug = await context.newCDPSession(page);
  await debug.send("Network.enable");
  const files = new Map();
  const paths = new Map();
  const add = (id, bytes) => files.set(id, (files.get(id) ?? 0) + bytes);
  debug.on("Network.requestWillBeSent", ({ requestId, request }) => paths.set(requestId, new URL(request.url).pathname));
  // A stream never finishes: its pieces are counted as they come.
  debug.on("Network.dataReceived", ({ requestId, encodedDataLength }) => add(requestId, encodedDataLength));
  debug.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => files.set(requestId, encodedDataLength));
  await act(page);
  await page.waitForLoadState("load");
  await page.evaluate(() => document.fonts.ready);
  await page.waitForTimeout(1500);
  const told = [...files].map(([id, bytes]) => [bytes, paths.get(id) ?? ""]).filter(([bytes]) => bytes > 0);
  told.sort(([a], [b]) => b - a);
  await page.close();
  return { bytes: told.reduce((sum, [bytes]) => sum + bytes, 0), told };
}

for (const locale of ["en-US", "ko-KR"]) {
  test(`first and next visit in ${locale}`, async () => {
    const context = await browser.newContext({ locale });
    const first = await received(context, (page) => signIn(page, house));
    const next = await received(context, (page) => page.goto(`${house.origin}/`));
    console.log(`${locale}: first visit ${first.bytes} bytes, next ${next.bytes} bytes, ${load()}`);
    assert.ok(first.bytes <= FIRST_VISIT, `${first.bytes}: ${JSON.stringify(first.told)}`);
    assert.ok(next.bytes <= NEXT_VISIT, `${next.bytes}: ${JSON.stringify(next.told)}`);
    await context.close();
  });
}
