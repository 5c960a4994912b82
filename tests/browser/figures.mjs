// What the console costs beside its visits: bytes of a page that is open while 200 sessions wait and nothing happens,
// and time and bytes of each page with a long history and a long queue.
//
// Promise (Installation and console): A page with thousands of sessions takes at most 15 KiB.

import assert from "node:assert/strict";
import { Agent, get } from "node:http";
import { loadavg } from "node:os";
import { test } from "node:test";
import { client, firstUser, history, holder, queue, users } from "./lib/crowd.mjs";
import { open } from "./lib/house.mjs";

const PAGE_BYTES = 15 << 10;
const REST_BYTES_A_SECOND = 1_000;
// The promise is 10 ms on a free machine; the gate runs on a busy one.
const PAGE_MS = Number(process.env.FARDEL_PAGE_MS ?? 60);
const REST_MS = Number(process.env.FARDEL_REST_MS ?? 30_000);
// For a minute after a change ages are told in seconds.
const SETTLE_MS = Number(process.env.FARDEL_SETTLE_MS ?? 66_000);
// Rows of the history and of the queue that are compared, and how often each page is asked for. The promise is of
// 10,000.
const FEW = Number(process.env.FARDEL_FEW ?? 1_000);
const MANY = Number(process.env.FARDEL_MANY ?? 3_000);
const TIMES = Number(process.env.FARDEL_ASKED ?? 9);

const load = () => `load ${loadavg()[0].toFixed(2)}`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/// A page for one user: its bytes on the wire, and milliseconds until the last of them.
function reader(origin, cookie) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const headers = { cookie, accept: "text/html", "accept-encoding": "br, gzip" };
  const ask = (path) =>
    new Promise((done, fail) => {
      const began = performance.now();
      const request = get(origin + path, { agent, headers }, (answer) => {
        let bytes = 0;
        answer.on("data", (piece) => (bytes += piece.length));
        answer.on("end", () => done({ status: answer.statusCode, ms: performance.now() - began, bytes }));
      });
      request.on("error", fail);
    });
  return Object.assign(ask, { close: () => agent.destroy() });
}

test("open pages are quiet while 200 sessions wait and nothing happens", async () => {
  const house = await open("--simulate-gpus", "H100:4");
  try {
    const cookie = await firstUser(house.origin, await house.setupLink());
    const cores = await holder(house, cookie);
    const ask = client(house.origin, cookie);
    // Not all at once: their ages change at different moments.
    for (let part = 0; part < 10; part += 1) {
      await queue([ask], 20, cores - 0.5, `part-${part}`);
      await pause(500);
    }
    await pause(SETTLE_MS);
    const pages = ["/live", "/sessions/live", "/queue/live", "/gpus/live"];
    const rates = pages.map(
      (path) =>
        new Promise((done, fail) => {
          const headers = { cookie, accept: "text/event-stream", "accept-encoding": "br, gzip" };
          const request = get(house.origin + path, { headers, agent: false }, async (answer) => {
            assert.equal(answer.statusCode, 200, path);
            answer.resume();
            // What a page is given when it opens is part of the visit.
            await pause(3_000);
            const before = answer.socket.bytesRead;
            await pause(REST_MS);
            const rate = ((answer.socket.bytesRead - before) / REST_MS) * 1000;
            request.destroy();
            done([path, Math.round(rate)]);
          });
          request.on("error", fail);
        }),
    );
    const told = await Promise.all(rates);
    console.log(`200 wait, bytes a second: ${told.map(([path, rate]) => `${path} ${rate}`).join(", ")}, ${load()}`);
    for (const [path, rate] of told) assert.ok(rate <= REST_BYTES_A_SECOND, `${path}: ${rate} bytes a second`);
  } finally {
    await house.close();
  }
});

test("pages with a long history and a long queue take no longer and no more than with a short one", { timeout: 600_000 }, async () => {
  const measured = [];
  for (const rows of [FEW, MANY]) {
    const house = await open("--simulate-gpus", "H100:4");
    try {
      measured.push(await pages(house, rows));
    } finally {
      await house.close();
    }
  }
  const [few, many] = measured;
  const late = [];
  for (const [name, { p50, bytes }] of Object.entries(many)) {
    console.log(`${name}: p50 ${few[name].p50.toFixed(1)} ms at ${FEW}, ${p50.toFixed(1)} ms at ${MANY}; ${bytes} bytes`);
    if (p50 > PAGE_MS) late.push(`${name}: ${p50} ms`);
    if (bytes > PAGE_BYTES) late.push(`${name}: ${bytes} bytes`);
  }
  console.log(load());
  assert.deepEqual(late, []);
});

/// The middle time and the bytes of each page of a server with so many sessions in its history, and as many that wait.
async function pages(house, rows) {
  const { origin } = house;
  const cookie = await firstUser(origin, await house.setupLink());
  const cores = await holder(house, cookie);
  const clients = await users(origin, cookie, Math.ceil(rows / 500) + 1);
  await history(clients, rows);
  await queue(clients, rows, cores - 0.5);
  const list = async (q) => {
    const answer = await fetch(`${origin}/api/v1/sessions?limit=1&q=${q}`, { headers: { cookie } });
    const { items } = await answer.json();
    return items[0].id;
  };
  const [ended, waits] = [await list("state:ended"), await list("state:pending")];
  const paths = {
    "overview": "/",
    "sessions": "/sessions",
    "sessions, fifth page": "/sessions?page=5",
    "sessions by a word": "/sessions?q=past-1",
    "sessions by a word that none has": "/sessions?q=nothing",
    "sessions of one owner": "/sessions?q=owner:user-1",
    "sessions by name": "/sessions?q=name:wait-7",
    "sessions that ended": "/sessions?q=state:ended",
    "sessions by CPU": "/sessions?sort=-cpu",
    "queue": "/queue",
    "queue, fifth page": "/queue?page=5",
    "queue of one owner": "/queue?q=owner:user-1",
    "queue by reason": "/queue?why=room",
    "events": "/events",
    "events by a word": "/events?q=past",
    "events by a word that none has": "/events?q=nothing",
    "launch form": "/sessions/new",
    "session that ended": `/sessions/${ended}`,
    "session that waits": `/sessions/${waits}`,
    "GPUs": "/gpus",
    "images": "/images",
    "users": "/users",
    "history": "/history",
    "notices": "/notices",
    "palette": "/palette?q=wait-1",
  };
  const ask = reader(origin, cookie);
  const seen = Object.fromEntries(Object.keys(paths).map((name) => [name, []]));
  for (let time = 0; time < TIMES; time += 1) {
    for (const [name, path] of Object.entries(paths)) {
      const answer = await ask(path);
      assert.equal(answer.status, 200, path);
      seen[name].push(answer);
      await pause(15);
    }
  }
  ask.close();
  const middle = (all) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)];
  return Object.fromEntries(
    Object.entries(seen).map(([name, all]) => [
      name,
      { p50: middle(all.map(({ ms }) => ms)), bytes: Math.max(...all.map(({ bytes }) => bytes)) },
    ]),
  );
}
