// Apps in a real browser: a program of a session is opened by its port at an origin of its own, stays open over a reload and
// a minute of rest, and reaches nothing of the console. Each attack stands beside a twin that succeeds where the check is not:
// on the app's own origin.
//
// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, violations } from "./lib/browser.mjs";
import { freePort, openWith, setUp, until } from "./lib/house.mjs";

const root = process.getuid() === 0;
// How long a socket rests before it is used again. The promise is a minute; the gate may shorten it.
const REST_MS = Number(process.env.FARDEL_APP_REST_MS ?? 5_000);

// A hostile app of Python's own parts: pages with script, cookies of our names, a socket that echoes.
const APP = `
import base64, hashlib, http.server, socketserver
PAGE = b"<!doctype html><title>An app</title><h1>An app</h1><script>navigator.serviceWorker && navigator.serviceWorker.register('/sw.js').catch(() => {})</script>"
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def say(self, body, kind="text/html"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "fardel=planted; Path=/")
        self.send_header("Set-Cookie", "sid=own; Path=/")
        self.send_header("Service-Worker-Allowed", "/")
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.say(b"posted", "text/plain")
    def do_GET(self):
        if self.path == "/socket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.wfile.flush()
            while True:
                head = self.rfile.read(2)
                if len(head) < 2 or head[0] & 15 == 8:
                    self.close_connection = True
                    return
                mask = self.rfile.read(4)
                text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
                self.wfile.write(bytes([129, len(text)]) + text)
                self.wfile.flush()
        elif self.path == "/cookie":
            self.say(self.headers.get("Cookie", "").encode(), "text/plain")
        elif self.path.endswith(".js"):
            self.say(b"globalThis.stolen = true;", "text/javascript")
        else:
            self.say(PAGE)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", 8000), Handler).serve_forever()
`;

let browser;
let house;
let context;
let page;
let apps;

const session = () => JSON.parse(house.command("session", "get", "web", "-o", "json"));
let python = true;

before(async () => {
  if (!root) return;
  browser = await launch();
  apps = await freePort();
  house = await openWith({ FARDEL_LISTEN_APPS: `127.0.0.1:${apps}` });
  context = await browser.newContext();
  page = await context.newPage();
  await setUp(page, house);
  house.command("run", "-d", "--cpu", "1", "--mem", "512m", "--name", "web", "host", "--", "python3", "-c", APP);
  await until(() => "the session runs or ends", async () => ["running", "ended"].includes(session().state));
  python = session().state === "running";
});

after(async () => {
  await browser?.close();
  await house?.close();
});

const skipped = (t) => {
  if (root && python) return false;
  t.skip(root ? "needs python3 on this machine" : "sessions need root");
  return true;
};

/// Opens the app by its port, as a user does; gives its tab.
async function opened() {
  await page.goto(`${house.origin}/sessions/${session().id}/apps`);
  await page.fill("#port", "8000");
  await page.press("#port", "Enter");
  await page.waitForURL((url) => url.port !== new URL(house.origin).port || url.pathname.endsWith("/apps/8000"));
  await until(() => `the app in ${page.url()}`, async () => (await page.title()) === "An app");
  return page;
}

test("an app opens by clicking, at an address of its own, and stays over a reload", async (t) => {
  if (skipped(t)) return;
  await page.goto(`${house.origin}/sessions/${session().id}`);
  await page.click(`a[href="/sessions/${session().id}/apps"]`);
  await page.waitForURL(/\/apps$/);
  assert.deepEqual(await violations(page), []);
  const app = await opened();
  const address = new URL(app.url());
  assert.equal(Number(address.port), apps, "the first of the ports");
  assert.equal(address.pathname, "/", "no ticket stays in the address");
  await app.reload();
  assert.equal(await app.title(), "An app");
  // The way back from a bookmark without a cookie of the app leads through the console, without a question.
  await context.clearCookies({ name: `fardel-app-${apps}` });
  await app.goto(`${address.origin}/deep?x=1`);
  await until(() => `the app in ${app.url()}`, async () => (await app.title()) === "An app");
  assert.equal(new URL(app.url()).pathname, "/deep");
});

test("a socket of an app lives while it rests", async (t) => {
  if (skipped(t)) return;
  const app = await opened();
  const said = await app.evaluate(async (rest) => {
    const socket = new WebSocket(`ws://${location.host}/socket`);
    const next = () => new Promise((done, fail) => { socket.onmessage = (event) => done(event.data); socket.onclose = () => fail(new Error("closed")); });
    await new Promise((done) => (socket.onopen = done));
    let answer = next();
    socket.send("one");
    const one = await answer;
    await new Promise((done) => setTimeout(done, rest));
    answer = next();
    socket.send("two");
    return [one, await answer];
  }, REST_MS);
  assert.deepEqual(said, ["one", "two"]);
});

test("no script of an app reads or changes anything of the console", async (t) => {
  if (skipped(t)) return;
  const app = await opened();
  const found = await app.evaluate(async (consoleOrigin) => {
    const result = {};
    const attempt = async (name, act) => {
      try { result[name] = await act(); } catch (error) { result[name] = `refused: ${error.name}`; }
    };
    const read = (origin) => async () => (await fetch(`${origin}/api/v1/me`, { credentials: "include" })).status;
    await attempt("read", read(consoleOrigin));
    await attempt("read twin", read(location.origin));
    await attempt("frame", () => new Promise((done) => {
      const frame = document.createElement("iframe");
      frame.onload = () => { try { done(frame.contentDocument ? "read" : "closed"); } catch { done("closed"); } };
      frame.src = `${consoleOrigin}/me`;
      document.body.append(frame);
    }));
    await attempt("frame twin", () => new Promise((done) => {
      const frame = document.createElement("iframe");
      frame.onload = () => done(frame.contentDocument?.title ?? "closed");
      frame.src = "/inner";
      document.body.append(frame);
    }));
    // Sent with every cookie of this host: the console must refuse it by its origin.
    await attempt("post", async () => (await fetch(`${consoleOrigin}/logout`, { method: "POST", mode: "no-cors", credentials: "include" })).type);
    await attempt("post twin", async () => (await fetch("/x", { method: "POST" })).text());
    await attempt("socket", () => new Promise((done) => {
      const socket = new WebSocket(`${consoleOrigin.replace("http", "ws")}/api/v1/events`);
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    }));
    await attempt("cookie", async () => document.cookie);
    // One that is refused is listed until its script was asked for.
    await attempt("worker", async () => {
      for (let tries = 0; ; tries++) {
        const scopes = (await navigator.serviceWorker.getRegistrations()).map((one) => one.scope);
        if (tries === 100 || !scopes.includes(`${location.origin}/`)) return scopes.join();
        await new Promise((again) => setTimeout(again, 50));
      }
    });
    await attempt("heard", async () => (await fetch("/cookie")).text());
    return result;
  }, house.origin);
  assert.match(found.read, /^refused/);
  assert.equal(found["read twin"], 200);
  assert.equal(found.frame, "closed");
  assert.equal(found["frame twin"], "An app");
  assert.equal(found["post twin"], "posted");
  assert.equal(found.socket, "refused");
  assert.doesNotMatch(found.cookie, /(^|; )(__Host-(Http-)?)?fardel[-=]/, "cookies that sign in are not for script");
  assert.match(found.cookie, /sid=own/);
  assert.doesNotMatch(found.worker, new RegExp(`:${apps}/$`), "no worker covers the whole origin");
  assert.equal(found.heard, "sid=own", "the app hears of its own cookies alone");
  // Signed in as before: the form was refused, and no cookie was planted over ours.
  await page.goto(`${house.origin}/me`);
  assert.equal(new URL(page.url()).pathname, "/me");
});

test("a page of the console takes no script and no frame of an app", async (t) => {
  if (skipped(t)) return;
  await opened();
  const other = await context.newPage();
  await other.goto(`${house.origin}/healthz`);
  // From another origin of this host, with all of its cookies.
  const loaded = await other.evaluate(async (app) => {
    const script = await new Promise((done) => {
      const element = document.createElement("script");
      element.onload = () => done("loaded");
      element.onerror = () => done("refused");
      element.src = `${app}/x.js`;
      document.documentElement.append(element);
    });
    const posted = await fetch(`${app}/x`, { method: "POST", mode: "no-cors", credentials: "include" }).then((answer) => answer.type, () => "failed");
    return { script, posted, stolen: globalThis.stolen ?? false };
  }, `http://127.0.0.1:${apps}`);
  assert.equal(loaded.script, "refused");
  assert.equal(loaded.stolen, false);
  await other.close();
});

test("an app closes when its user signs out", async (t) => {
  if (skipped(t)) return;
  const app = await opened();
  const closed = app.evaluate(() => new Promise((done) => {
    const socket = new WebSocket(`ws://${location.host}/socket`);
    socket.onopen = () => (globalThis.isOpen = true);
    socket.onclose = () => {
      globalThis.isOpen = false;
      done(performance.timeOrigin + performance.now());
    };
  }));
  await until(() => "the socket is open", () => app.evaluate(() => globalThis.isOpen));
  const other = await context.newPage();
  await other.goto(`${house.origin}/`);
  assert.ok(await app.evaluate(() => globalThis.isOpen), "it closed before");
  const [left, leftAt] = await other.evaluate(async () => {
    const { status } = await fetch("/logout", { method: "POST" });
    return [status, performance.timeOrigin + performance.now()];
  });
  assert.ok(left < 400, `signing out: ${left}`);
  const took = (await closed) - leftAt;
  assert.ok(took <= 2_000, `${took} ms`);
  await app.goto(`http://127.0.0.1:${apps}/`);
  assert.match(app.url(), /\/login\?next=/);
});
