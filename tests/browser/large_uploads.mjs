// One very large file on its way into a folder, from a real browser: the wire is cut in the middle, the tab is closed and
// opened again, and another program takes the server's place, as an upgrade of the package does. What arrived is never sent
// again, and the file in the folder has the digest of the one on the disk. Once by the page itself, and once by
// tus-js-client as it is published. Prints the time, without these pauses, beside plain writes of the same bytes with the
// same syncs to the same disk, and beside what the browser sends to a server that throws it away: a browser may be the
// slowest of all. `bench upload` is what judges a speed.
//
// `FARDEL_UPLOAD_GB` says how large; as much room has to be on the temporary disk. `FARDEL_NEXT_BINARY` names the program
// that takes over; without it a copy of the same one does.
//
// Proves too: `packaging/tasks/src/vm/notebooks.py`

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  closeSync, copyFileSync, createReadStream, existsSync, fdatasyncSync, fsyncSync, ftruncateSync, mkdtempSync, openSync,
  readFileSync, rmSync, statSync, writeSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { launch } from "./lib/browser.mjs";
import { addFolder, openWith, setUp } from "./lib/house.mjs";
import { relay } from "./lib/relay.mjs";
import { swallowed } from "./lib/sink.mjs";

const BYTES = Math.round(Number(process.env.FARDEL_UPLOAD_GB ?? 20) * 1e9);
const MIB = 1 << 20;
const BLOCK = 4096;
// Bytes between two syncs of an upload in the product.
const SYNC = 64 * MIB;
// Of a larger file only so much is sent to where it is thrown away.
const THROWN = Math.min(BYTES, 4e9);
const NAME = "large.bin";
const CLIENT = "tus-js-client";
// Nothing arrives for so long: it does not go on by itself.
const STALLED_MS = 60_000;
// How long the wire carries nothing, and how long it refuses connections behind that.
const SILENT_MS = 2_000;
const REFUSING_MS = 3_000;
// What the page's tab or the server still takes in when its end was asked for.
const SETTLE_MS = 500;
// Between two looks at how far it is. Shorter: the looks take a part of the machine.
const LOOK_MS = 50;
const HOURS = 3 * 3_600_000;

const files = mkdtempSync(join(tmpdir(), "fardel-large-"));
const source = join(files, NAME);
const next = join(files, "next");
let browser;

/// How the bytes of each MiB begin to differ from all others: a number at a place of its own.
function stamp(piece, number) {
  piece.fill(0);
  piece.write(`mebibyte ${number}, ${number * 2654435761}`, (number % (MIB / BLOCK)) * BLOCK);
  return piece;
}

/// The file: holes, and in each MiB a block of its own, so that it takes little room.
function lay() {
  const file = openSync(source, "w");
  ftruncateSync(file, BYTES);
  const piece = Buffer.alloc(MIB);
  for (let at = 0, number = 0; at < BYTES; at += MIB, number += 1) {
    const begin = (number % (MIB / BLOCK)) * BLOCK;
    const length = Math.min(BLOCK, BYTES - at - begin);
    if (length > 0) writeSync(file, stamp(piece, number), begin, length, at + begin);
  }
  closeSync(file);
}

/// Writes the same bytes from memory, with the same syncs; gives seconds.
function written() {
  const place = join(files, "plain.bin");
  const piece = Buffer.alloc(MIB);
  const from = performance.now();
  const file = openSync(place, "w");
  for (let at = 0, number = 0; at < BYTES; at += MIB, number += 1) {
    writeSync(file, stamp(piece, number), 0, Math.min(MIB, BYTES - at), at);
    if ((at + MIB) % SYNC === 0) fdatasyncSync(file);
  }
  fsyncSync(file);
  closeSync(file);
  const took = (performance.now() - from) / 1000;
  rmSync(place);
  return took;
}

async function digest(path) {
  const hash = createHash("sha256");
  for await (const bytes of createReadStream(path, { highWaterMark: MIB })) hash.update(bytes);
  return hash.digest("hex");
}

const SENDERS = [
  {
    name: "the page",
    async begin(page) {
      await page.setInputFiles("#files", source);
      await page.click("#upload button:has-text('Upload')");
    },
  },
  {
    name: "tus-js-client",
    async begin(page, endpoint) {
      const entry = createRequire(import.meta.url).resolve(CLIENT);
      const client = entry.slice(0, entry.lastIndexOf(CLIENT) + CLIENT.length);
      // Through the debugger: the page's own policy refuses foreign scripts.
      await page.evaluate(readFileSync(join(client, "dist", "tus.min.js"), "utf8"));
      await page.setInputFiles("#files", source);
      await page.evaluate(async (endpoint) => {
        const [file] = document.querySelector("#files").files;
        const upload = new globalThis.tus.Upload(file, { endpoint, metadata: { filename: file.name } });
        const [known] = await upload.findPreviousUploads();
        if (known) upload.resumeFromPreviousUpload(known);
        upload.start();
      }, endpoint);
    },
  },
];

before(async () => {
  lay();
  copyFileSync(process.env.FARDEL_NEXT_BINARY ?? process.env.FARDEL_BINARY, next);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  rmSync(files, { recursive: true, force: true });
});

/// Sends the file through all of it; gives the seconds in which bytes came.
async function sent(house, sender) {
  const context = await browser.newContext({ locale: "en-US" });
  const first = await context.newPage();
  await setUp(first, house);
  const { place, mounted } = await addFolder(first, house, "data");
  await first.close();
  const wire = await relay(new URL(house.origin).port);
  const files = place.replace(house.origin, wire.origin);
  const endpoint = `${wire.origin}/api/v1/folders/${new URL(place).pathname.split("/")[2]}/uploads`;
  const offsets = [];
  // Until a first file is chosen nothing is on its way, and the page itself is none of it.
  let from = null;
  const open = async () => {
    const page = await context.newPage();
    page.on("request", (request) => {
      if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
    });
    await page.goto(files);
    from ??= performance.now();
    await sender.begin(page, endpoint);
    return page;
  };

  // Asked past the wire. A server that is away knows of none.
  const folder = endpoint.replace(wire.origin, house.origin).replace(/\/uploads$/, "");
  const get = (path) => context.request.get(`${folder}/${path}`).catch(() => null);
  let arrived = 0;
  let isThere = false;
  /// Looks how much of it is on the server's disk, and whether it has its place.
  const look = async () => {
    const told = await get("uploads");
    const [upload] = told?.ok() ? (await told.json()).items : [null];
    if (upload) arrived = upload.offset;
    // It has its place by one rename, behind which no upload is told of.
    else if (told?.ok() && arrived > 0) isThere = (await get("entries"))?.ok() && existsSync(join(mounted, NAME));
  };
  /// Waits while bytes come, until this is true.
  const comes = async (what, isTrue) => {
    let seen = arrived;
    for (let end = Date.now() + STALLED_MS; await look(), !isTrue(); await wait(LOOK_MS)) {
      if (arrived !== seen) end = Date.now() + STALLED_MS;
      seen = arrived;
      assert.ok(Date.now() < end, `${what}: nothing comes, and ${seen} bytes of ${BYTES} are there`);
    }
  };

  let spent = 0;
  /// Lets something happen once this part of the file is there. Its time does not count, nor does what follows until bytes
  /// come again; these begin where the file stood.
  const amid = async (part, what, happens) => {
    await comes(what, () => arrived >= part * BYTES);
    spent += performance.now() - from;
    const known = offsets.length;
    await happens();
    const at = arrived;
    await comes(`after ${what}`, () => arrived > at || isThere);
    from = performance.now();
    // A small rest may come whole before a server leaves.
    if (isThere) return;
    assert.ok(offsets.length > known, `${what} breaks it off`);
    const begun = offsets.slice(known).at(-1);
    assert.ok(begun >= at, `${what}: it goes on at ${begun}, and ${at} were there`);
    console.log(`${sender.name}: ${what} with ${at} bytes there; it goes on at ${begun}`);
  };

  try {
    let page = await open();
    await amid(0.25, "a cut wire", async () => {
      wire.hush();
      await wait(SILENT_MS);
      wire.cut();
      await wait(REFUSING_MS);
      await look();
      wire.mend();
    });
    await amid(0.5, "a closed tab", async () => {
      await page.close();
      await wait(SETTLE_MS);
      await look();
      page = await open();
    });
    await amid(0.75, "another program", async () => {
      await house.leave();
      await house.enter(next);
      await look();
    });
    await comes("the end", () => isThere);
    spent += performance.now() - from;
    assert.equal(statSync(join(mounted, NAME)).size, BYTES);
    const [theirs, ours] = await Promise.all([digest(source), digest(join(mounted, NAME))]);
    assert.equal(ours, theirs);
    console.log(`${sender.name}: sha256 ${ours} on both sides`);
  } finally {
    await context.close();
    await wire.close();
  }
  return spent / 1000;
}

for (const sender of SENDERS) {
  test(`${BYTES / 1e9} GB by ${sender.name} over a cut wire, a closed tab and another program`, { timeout: HOURS }, async () => {
    const before = written();
    const thrown = BYTES * (await swallowed(browser, source, THROWN)) / THROWN;
    const house = await openWith({});
    let took;
    try {
      took = await sent(house, sender);
    } finally {
      await house.close();
    }
    const plain = (before + written()) / 2;
    const rate = (seconds) => `${Math.round(BYTES / 1e6 / seconds)} MB/s`;
    console.log(
      `${sender.name}: ${BYTES / 1e9} GB in ${took.toFixed(1)} s, ${rate(took)}; plain writes ${rate(plain)}: ` +
        `${(plain / took).toFixed(2)} ×; the browser to where it is thrown away ${rate(thrown)}: ${(thrown / took).toFixed(2)} ×`,
    );
  });
}
