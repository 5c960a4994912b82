// A port that passes from one app to another, in a real browser: the machine has one port for apps, so the next app waits until
// the one before has rested a day, and then finds nothing of what that one left in the browser. While the port is the first
// app's, everything is still there when it is entered again.
//
// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch } from "./lib/browser.mjs";
import { openWith, setUp, until } from "./lib/house.mjs";

const root = process.getuid() === 0;
// The last port of a machine: the range of ports for apps ends with it.
const LAST = 65_535;

// An app with a page, and a worker for what lies below one directory.
const APP = `
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_GET(self):
        script = self.path.endswith(".js")
        body = b"self.addEventListener('fetch', () => {});" if script else b"<!doctype html><title>App of %s</title>" % sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if script else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
`;

// Lets the only port have rested for longer than a day.
const REST = `
import sqlite3, sys
catalog = sqlite3.connect(sys.argv[1], timeout=20)
with catalog:
    changed = catalog.execute("update app_port set used_at = used_at - 25 * 3600 * 1000, opened_at = opened_at - 25 * 3600 * 1000").rowcount
print(changed)
`;

let browser;
let house;
let page;
let python = true;

const session = (name) => JSON.parse(house.command("session", "get", name, "-o", "json"));

async function start(name, port) {
  house.command("run", "-d", "--cpu", "0.5", "--mem", "256m", "--name", name, "host", "--", "python3", "-c", APP, name, String(port));
  await until(() => "the session runs or ends", async () => ["running", "ended"].includes(session(name).state));
  return session(name).state === "running";
}

before(async () => {
  if (!root) return;
  browser = await launch();
  house = await openWith({ FARDEL_LISTEN_APPS: `127.0.0.1:${LAST}` });
  page = await (await browser.newContext({ locale: "en-US" })).newPage();
  await setUp(page, house);
  // A small python has no sqlite3.
  const hasModule = spawnSync("python3", ["-c", "import sqlite3"]).status === 0;
  python = (await start("first", 8000)) && hasModule;
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// Asks for the way into an app; gives its entry, or the code of a refusal.
const open = (name, port) =>
  page.evaluate(async (path) => {
    const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    const body = await answer.json();
    return answer.ok ? body.entry : body.code;
  }, `/api/v1/sessions/${session(name).id}/apps/${port}/open`);

/// Opens the app of a session by its port inside, as soon as it listens.
async function opened(name, port) {
  await page.goto(`${house.origin}/sessions`);
  let way;
  await until(() => `the app of ${name}: ${way}`, async () => (way = await open(name, port))?.startsWith("http"));
  await page.goto(way);
  assert.equal(await page.title(), `App of ${name}`);
  assert.equal(new URL(page.url()).port, String(LAST));
}

/// What lies in the browser at the origin of the page.
const left = () =>
  page.evaluate(async () => ({
    stored: localStorage.getItem("left"),
    kept: await caches.keys(),
    workers: (await navigator.serviceWorker.getRegistrations()).length,
  }));

test("a port that passes to another app is empty", async (t) => {
  if (!root || !python) return t.skip(root ? "needs python3 with sqlite3 on this machine" : "sessions need root");
  await opened("first", 8000);
  await page.evaluate(async () => {
    localStorage.setItem("left", "by the first");
    await (await caches.open("left")).put("/kept", new Response("by the first"));
    await navigator.serviceWorker.register("/below/worker.js");
  });
  const all = { stored: "by the first", kept: ["left"], workers: 1 };
  assert.deepEqual(await left(), all);
  // Entered again, by another ticket, the same app has all of it.
  await page.context().clearCookies({ name: /app/ });
  await opened("first", 8000);
  assert.deepEqual(await left(), all);

  house.command("session", "kill", "first");
  await until(() => "the first is over", async () => session("first").state === "ended");
  assert.ok(await start("second", 8001));
  // The port is not free before its rest is over, though its session is.
  await page.goto(`${house.origin}/sessions`);
  assert.match(await open("second", 8001), /^app\.ports-(many|used-up)$/);
  const rested = execFileSync("python3", ["-c", REST, join(house.environment.FARDEL_DATA, "catalog.sqlite")], { encoding: "utf8" });
  assert.equal(rested.trim(), "1");
  await opened("second", 8001);
  assert.deepEqual(await left(), { stored: null, kept: [], workers: 0 });
});
