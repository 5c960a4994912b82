// Many sessions of many users, made over the API of a running server. Only makes rows: of these only the holder runs.

import assert from "node:assert/strict";
import { cpus } from "node:os";
import { until } from "./house.mjs";

const PASSWORD = "a long walk by the river 7";
// A launch has at most so many replicas, and a user at most 1,000 sessions that wait.
const REPLICAS = 500;
const SIZES = [1, 7, 2, 20, 1, 10, 40, 3, 1, 15];

/// Signs in through the form; gives the cookie.
export async function cookieOf(origin, name, password = PASSWORD, path = "/login", more = {}) {
  const answer = await fetch(`${origin}${path}`, {
    method: "POST",
    redirect: "manual",
    headers: { origin, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ name, password, ...more }).toString(),
  });
  const cookie = answer.headers.get("set-cookie")?.split(";")[0];
  assert.ok(cookie, `${path} answers ${answer.status}`);
  return cookie;
}

/// What one signed-in user asks the API for.
export function client(origin, cookie) {
  return async (path, body) => {
    const answer = await fetch(`${origin}/api/v1${path}`, {
      method: "POST",
      headers: { origin, cookie, "sec-fetch-site": "same-origin", "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    assert.ok(answer.ok, `${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  };
}

/// An administrator `mina` through the setup link; gives the cookie.
export async function firstUser(origin, link) {
  const code = new URL(link).searchParams.get("code");
  return cookieOf(origin, "mina", PASSWORD, "/setup", { code, again: PASSWORD });
}

/// Users `user-0`, `user-1` … with a client for each.
export async function users(origin, cookie, count, role = "user") {
  const admin = client(origin, cookie);
  const all = [];
  for (let number = 0; number < count; number += 1) {
    const name = `${role}-${number}`;
    await admin("/users", { name, password: PASSWORD, role });
    all.push(client(origin, await cookieOf(origin, name)));
  }
  return all;
}

const batch = (name, resources, more) => ({ name, kind: "batch", image: "host", command: ["true"], resources, ...more });

/// `count` ended sessions: they were taken back before their time came.
export async function history(clients, count) {
  const start_at = new Date(Date.now() + 365 * 86_400_000).toISOString();
  const small = { cpu: 0.05, memory: 32 << 20, shm: 1 << 20 };
  for (let made = 0, at = 0; made < count; at += 1) {
    const replicas = Math.min(SIZES[at % SIZES.length], count - made);
    const asked = clients[at % clients.length];
    const answer = await asked("/sessions", batch(`past-${at}`, small, { replicas, start_at }));
    const ids = (answer.items ?? [answer]).map((session) => session.id);
    await Promise.all(ids.map((id) => asked(`/sessions/${id}/stop`, {})));
    made += replicas;
  }
}

/// `count` sessions that wait for more cores than are free, in launches of 1 to 40 replicas, a few for GPUs as well.
export async function queue(clients, count, cpu, stem = "wait") {
  for (let made = 0, at = 0; made < count; at += 1) {
    const replicas = Math.min(SIZES[at % SIZES.length], count - made, REPLICAS);
    const resources = { cpu: cpu - (at % 7) * 0.05, memory: (64 + (at % 5) * 64) << 20, shm: 1 << 20, ...[{}, { gpu: 0.1 }, { gpu: 0.35 }, { gpu: 1 }][at % 4] };
    const limit = at % 3 === 0 ? { max_runtime_seconds: 3600 } : {};
    await clients[at % clients.length]("/sessions", batch(`${stem}-${at}`, resources, { replicas, ...limit }));
    made += replicas;
  }
}

/// One that runs where sessions can, so that nothing of the queue starts.
export async function holder(house, cookie) {
  const all = cpus().length;
  await client(house.origin, cookie)("/sessions", {
    name: "holder", kind: "batch", image: "host", command: ["sleep", "86400"],
    resources: { cpu: all - 0.05, memory: 64 << 20, shm: 1 << 20 },
  });
  if (process.getuid() === 0) {
    await until(() => "the holder runs", async () => JSON.parse(house.command("session", "get", "holder", "-o", "json")).state === "running");
  }
  return all;
}
