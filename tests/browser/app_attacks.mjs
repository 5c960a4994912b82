// One app against another, and one user against another, in a real browser: at ports, where a browser sends every cookie of the
// host to every app, and at names. Each attack is made twice by the same script: from a page of the other app, where nothing of
// it may reach its target, and from a page of the target itself, where all of it does. The target tells what it heard.
//
// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { launch } from "./lib/browser.mjs";
import { addUser, freePort, openWith, setUp, until } from "./lib/house.mjs";

// The box's own authority is known to no client yet.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

const root = process.getuid() === 0;
const OTHER = { name: "jae", password: "the heron stands in the reeds 8" };

// Two apps of one session, each of which remembers what it was asked.
const APPS = `
import base64, hashlib, http.server, json, socketserver, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def say(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append("POST " + self.path)
        self.say(b"posted", "text/plain")
    def do_GET(self):
        if self.path == "/heard":
            return self.say(json.dumps(self.server.heard).encode(), "application/json")
        self.server.heard.append("GET " + self.path)
        if self.path == "/attack/socket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.close_connection = True
        else:
            self.say(b"<!doctype html><title>App %d</title><h1>An app</h1>" % self.server.server_port, "text/html")
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
for port in (8000, 8001):
    server = Server(("127.0.0.1", port), Handler)
    server.heard = []
    last = threading.Thread(target=server.serve_forever)
    last.start()
last.join()
`;

/// What the target hears of an attack that nothing stops.
const ALL = ["GET /attack/fetch", "GET /attack/frame", "GET /attack/image", "GET /attack/script", "GET /attack/socket", "POST /attack/form", "POST /attack/post"];

/// Where a server has its apps: at ports of its address, as on a box without a name, or at names of their own. At a port a
/// browser says by the console's cookie who it is; at a name it does not, and there a ticket is worth its one use.
const PLACES = [
  { name: "at ports", besideConsole: true, variables: async () => ({ FARDEL_LISTEN_APPS: `127.0.0.1:${await freePort()}` }) },
  { name: "at names", besideConsole: false, variables: async () => ({ FARDEL_APPS_NAME: "apps.localhost", FARDEL_TLS: "on" }) },
];

let browser;
let house;
let context;
let python;

const session = () => JSON.parse(house.command("session", "get", "web", "-o", "json"));
const newContext = () => browser.newContext({ locale: "en-US", ignoreHTTPSErrors: true });

/// Starts a server with its apps at such a place, signs its administrator in, and starts the session with both apps.
async function settle(place) {
  const variables = await place.variables();
  house = await openWith(variables);
  const host = variables.FARDEL_APPS_NAME ? "localhost" : "127.0.0.1";
  const scheme = variables.FARDEL_TLS ? "https" : "http";
  const called = (address) => address.replace(/^https?:\/\/[^:/]+/, `${scheme}://${host}`);
  const link = await house.setupLink();
  house.setupLink = async () => called(link);
  house.origin = called(house.origin);
  context = await newContext();
  const page = await context.newPage();
  await setUp(page, house);
  await addUser(page, house, OTHER);
  await page.close();
  house.command("run", "-d", "--cpu", "1", "--mem", "512m", "--name", "web", "host", "--", "python3", "-c", APPS);
  await until(() => "the session runs or ends", async () => ["running", "ended"].includes(session().state));
  python = session().state === "running";
}

const skipped = (t) => {
  if (root && python) return false;
  t.skip(root ? "needs python3 on this machine" : "sessions need root");
  return true;
};

/// Opens an app by its port inside, as a user does; gives its tab.
async function opened(port) {
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions/${session().id}/apps`);
  await page.fill("#port", String(port));
  await page.press("#port", "Enter");
  await until(() => `the app in ${page.url()}`, async () => (await page.title()) === `App ${port}`);
  return page;
}

/// What an app was asked since it began, but for its own page and its icon.
const heard = async (page) => {
  const all = await page.evaluate(async () => (await fetch("/heard")).json());
  return all.filter((line) => line.includes("/attack/")).sort();
};

/// Everything that a page can send to an origin, each awaited until the browser has an answer or none.
const attack = (page, target) =>
  page.evaluate(async (target) => {
    const quiet = (act) => act.catch(() => {});
    const element = (kind, set) => new Promise((done) => {
      const made = document.createElement(kind);
      made.onload = done;
      made.onerror = done;
      // A frame that is refused may say nothing.
      setTimeout(done, 5_000);
      set(made);
      document.body.append(made);
    });
    const cross = { mode: "no-cors", credentials: "include" };
    await quiet(fetch(`${target}/attack/fetch`, cross));
    await quiet(fetch(`${target}/attack/post`, { ...cross, method: "POST", body: "x" }));
    await element("img", (made) => (made.src = `${target}/attack/image`));
    await element("script", (made) => (made.src = `${target}/attack/script`));
    await element("iframe", (made) => (made.src = `${target}/attack/frame`));
    await new Promise((done) => {
      const socket = new WebSocket(`${target.replace("http", "ws")}/attack/socket`);
      socket.onclose = done;
      socket.onerror = done;
    });
    await element("iframe", (made) => (made.name = "posts"));
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: `${target}/attack/form`, target: "posts" });
    document.body.append(form);
    form.submit();
    await new Promise((done) => setTimeout(done, 1_000));
  }, target);

before(async () => {
  if (root) browser = await launch();
});

after(() => browser?.close());

for (const place of PLACES) {
  describe(`apps ${place.name}`, () => {
    before(() => browser && settle(place));

    after(async () => {
      await context?.close();
      await house?.close();
    });

    test("nothing that a page of one app sends reaches another", async (t) => {
      if (skipped(t)) return;
      const target = await opened(8001);
      const hostile = await opened(8000);
      const origin = new URL(target.url()).origin;
      assert.notEqual(new URL(hostile.url()).origin, origin);
      await attack(hostile, origin);
      assert.deepEqual(await heard(target), [], "from the other app");
      await attack(target, origin);
      assert.deepEqual(await heard(target), ALL, "from its own page");
      await target.close();
      await hostile.close();
    });

    test("a ticket enters once, and no other user by it", async (t) => {
      if (skipped(t)) return;
      const stranger = await newContext();
      const theirs = await stranger.newPage();
      await theirs.goto(`${house.origin}/login`);
      await theirs.fill("#name", OTHER.name);
      await theirs.fill("#password", OTHER.password);
      await Promise.all([theirs.waitForURL((url) => url.pathname !== "/login"), theirs.press("#password", "Enter")]);

      // The one that a browser used is in its history.
      let entry = "";
      const note = (request) => {
        if (request.url().includes("/.fardel/enter?ticket=")) entry = request.url();
      };
      context.on("request", note);
      const app = await opened(8000);
      context.off("request", note);
      assert.notEqual(entry, "");
      const origin = new URL(app.url()).origin;
      await context.clearCookies({ name: /app/ });
      for (const page of [app, theirs]) {
        const answer = await page.goto(entry);
        assert.equal(answer.status(), 403, "a ticket that was used");
      }

      // One that was copied before its browser came to use it: with the first try it is gone.
      const page = await context.newPage();
      await page.goto(`${house.origin}/sessions/${session().id}/apps`);
      const copied = await page.evaluate(async (path) => {
        const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
        return (await answer.json()).entry;
      }, `/api/v1/sessions/${session().id}/apps/8000/open`);
      assert.equal(new URL(copied).origin, origin);
      for (const tries of place.besideConsole ? [theirs, page] : []) {
        assert.equal((await tries.goto(copied)).status(), 403, "a ticket that another user tried");
        assert.notEqual(await tries.title(), "App 8000");
      }

      // By its address alone a stranger sees nothing of it, and its own user comes in again.
      await theirs.goto(`${origin}/`).catch(() => {});
      assert.notEqual(await theirs.title(), "App 8000");
      await page.goto(`${origin}/`);
      await until(() => `the app in ${page.url()}`, async () => (await page.title()) === "App 8000");
      await stranger.close();
    });

    test("an app is closed two seconds after its user has signed out", async (t) => {
      if (skipped(t)) return;
      const app = await opened(8000);
      await app.evaluate(() => {
        const loop = async () => {
          for (;;) {
            const status = await fetch("/heard").then((answer) => answer.status, () => 0);
            if (status !== 200) return (globalThis.closedAt = performance.timeOrigin + performance.now());
            await new Promise((again) => setTimeout(again, 20));
          }
        };
        loop();
      });
      const other = await context.newPage();
      await other.goto(`${house.origin}/`);
      const leftAt = await other.evaluate(async () => {
        const answer = await fetch("/logout", { method: "POST" });
        if (answer.status >= 400) throw new Error(`signing out: ${answer.status}`);
        return performance.timeOrigin + performance.now();
      });
      const closedAt = await until(() => "the app is closed", () => app.evaluate(() => globalThis.closedAt));
      assert.ok(closedAt - leftAt <= 2_000, `${closedAt - leftAt} ms`);
    });
  });
}
