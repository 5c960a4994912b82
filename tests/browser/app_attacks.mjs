// One app against another, against the console, and one user's against another user's, in a real browser: at ports, where a
// browser sends every cookie of the host to every app, and at names. Each attack is made again by the same script where the
// check is not: from a page of the target itself, and through a server beside it that hides who asks, or that drops no cookie.
// There all of it works. The target tells what it heard.
//
// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch } from "./lib/browser.mjs";
import { addUser, freePort, openWith, PERSON, setUp, until } from "./lib/house.mjs";
import { withoutCheckOfAsker, withoutCheckOfCookies } from "./lib/unchecked.mjs";

// The box's own authority is known to no client yet.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

const root = process.getuid() === 0;
const OTHER = { name: "jae", password: "the heron stands in the reeds 8" };

// Two apps of one session, each of which remembers what it was asked, and sets the cookies that it is told to.
const APPS = `
import base64, hashlib, http.server, json, socketserver, threading, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def say(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.path.startswith("/set?"):
            for cookie in urllib.parse.unquote(self.path[5:]).split("|"):
                self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append("POST " + self.path)
        self.say(b"posted", "text/plain")
    def do_GET(self):
        if self.path == "/heard":
            return self.say(json.dumps(self.server.heard).encode(), "application/json")
        if self.path == "/cookies":
            return self.say(self.headers.get("Cookie", "").encode(), "text/plain")
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
  { name: "at ports", besideConsole: true, variables: async () => ({ FARDEL_LISTEN_APPS: `127.0.0.1:${await freePort()}`, FARDEL_TLS: "on" }) },
  { name: "at names", besideConsole: false, variables: async () => ({ FARDEL_APPS_NAME: "apps.localhost", FARDEL_TLS: "on" }) },
];

let browser;
let house;
let context;
let python;
// The box's own key and certificate, for servers beside it.
let pem;
// The other user's browser, and their session with the same apps.
let stranger;
let theirs;

const session = () => JSON.parse(house.command("session", "get", "web", "-o", "json"));
const newContext = () => browser.newContext({ locale: "en-US", ignoreHTTPSErrors: true });

/// Starts a server with its apps at such a place, signs its administrator in, and starts the session with both apps.
async function settle(place) {
  const variables = await place.variables();
  house = await openWith(variables);
  const host = variables.FARDEL_APPS_NAME ? "localhost" : "127.0.0.1";
  const called = (address) => address.replace(/^https?:\/\/[^:/]+/, `https://${host}`);
  const link = await house.setupLink();
  house.setupLink = async () => called(link);
  house.origin = called(house.origin);
  context = await newContext();
  const page = await context.newPage();
  await setUp(page, house);
  await addUser(page, house, OTHER);
  pem = readFileSync(join(house.environment.FARDEL_DATA, "tls/own.pem"), "utf8");
  house.command("run", "-d", "--cpu", "0.5", "--mem", "512m", "--name", "web", "host", "--", "python3", "-c", APPS);
  await until(() => "the session runs or ends", async () => ["running", "ended"].includes(session().state));
  python = session().state === "running";
  // Before an app listens, its page waits for a click. The second listens after the first.
  const entry = () => asked(page, "POST", `/sessions/${session().id}/apps/8001/open`, {}).then((way) => way.entry, () => null);
  if (python) await until(() => "the apps listen", entry);
  await page.close();
  stranger = await newContext();
  theirs = await stranger.newPage();
  await theirs.goto(`${house.origin}/login`);
  await theirs.fill("#name", OTHER.name);
  await theirs.fill("#password", OTHER.password);
  await Promise.all([theirs.waitForURL((url) => url.pathname !== "/login"), theirs.press("#password", "Enter")]);
}

/// Asks the API as the browser of a page of the console does; gives the body of a good answer.
const asked = (page, method, path, body) =>
  page.evaluate(async ([method, path, body]) => {
    const headers = body ? { "content-type": "application/json" } : {};
    const answer = await fetch(`/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.status === 204 ? null : answer.json();
  }, [method, path, body]);

/// Who a browser is to the console.
async function whoIs(context) {
  const page = await context.newPage();
  await page.goto(`${house.origin}/healthz`);
  const name = await page.evaluate(async () => {
    const answer = await fetch("/api/v1/me");
    return answer.ok ? (await answer.json()).name : `${answer.status}`;
  });
  await page.close();
  return name;
}

/// Another browser with all that a browser has now.
const copyOf = async (context) => browser.newContext({ locale: "en-US", ignoreHTTPSErrors: true, storageState: await context.storageState() });

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

/// The same as soon as it is so many: on a busy machine the last may come after the page's own wait.
const heardAll = (page, count) => until(() => `${count} are heard`, async () => {
  const all = await heard(page);
  return all.length >= count && all;
});

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

/// Lets the page of an app ask it again and again, and note when it answers no more. Its first answer is there.
const watch = (page) =>
  page.evaluate(async () => {
    const { status } = await fetch("/heard");
    if (status !== 200) throw new Error(`before it is closed: ${status}`);
    const loop = async () => {
      for (;;) {
        const status = await fetch("/heard").then((answer) => answer.status, () => 0);
        if (status !== 200) return (globalThis.closedAt = performance.timeOrigin + performance.now());
        await new Promise((again) => setTimeout(again, 20));
      }
    };
    loop();
  });

/// When that was.
const closed = (page) => until(() => "the app is closed", () => page.evaluate(() => globalThis.closedAt));

before(async () => {
  if (root) browser = await launch();
});

after(() => browser?.close());

for (const place of PLACES) {
  describe(`apps ${place.name}`, () => {
    before(() => browser && settle(place));

    after(async () => {
      await context?.close();
      await stranger?.close();
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
      assert.deepEqual(await heardAll(target, ALL.length), ALL, "from its own page");
      await hostile.close();
      await target.close();
    });

    test("nothing that an app of another user sends reaches one, and it closes when its share is taken back", async (t) => {
      if (skipped(t)) return;
      const target = await opened(8001);
      const { origin } = new URL(target.url());
      const before = await heard(target);
      // Its page is a page of theirs in this browser.
      const launched = await asked(theirs, "POST", "/sessions", {
        name: "theirs", kind: "batch", image: "host", command: ["python3", "-c", APPS], resources: { cpu: 0.5, memory: 512 << 20 },
      });
      const path = `/sessions/${launched.id}`;
      await until(() => "their session runs", async () => (await asked(theirs, "GET", path)).state === "running");
      const way = await until(() => "their app answers", () => asked(theirs, "POST", `${path}/apps/8000/open`, {}).then((way) => way.entry && way, () => null));
      const share = await asked(theirs, "POST", `${path}/apps/8000/shares`, { user: PERSON.name });
      const visited = await context.newPage();
      await visited.goto(`${house.origin}/apps/${way.app.address_port}`);
      await until(() => `their app in ${visited.url()}`, async () => (await visited.title()) === "App 8000");
      assert.notEqual(new URL(visited.url()).origin, origin);
      await attack(visited, origin);
      assert.deepEqual(await heard(target), before, "from an app of another user");
      // The same page and the same script, and a server that hides who asks.
      const relay = await withoutCheckOfAsker(origin, pem);
      await attack(visited, relay.origin);
      const everything = [...before, ...ALL].sort();
      assert.deepEqual(await heardAll(target, everything.length), everything, "without the check");
      await relay.close();
      await watch(visited);
      const at = `/api/v1${path}/apps/8000/shares/${share.id}`;
      const takenAt = await theirs.evaluate(async (path) => {
        const answer = await fetch(path, { method: "DELETE" });
        if (!answer.ok) throw new Error(`taking a share back: ${answer.status}`);
        return performance.timeOrigin + performance.now();
      }, at);
      const took = (await closed(visited)) - takenAt;
      assert.ok(took <= 2_000, `${took} ms`);
      await visited.close();
      await target.close();
    });

    test("no page of an app signs anyone out of the console", async (t) => {
      if (skipped(t)) return;
      const leave = (page, at) => page.evaluate((at) => fetch(`${at}/logout`, { method: "POST", mode: "no-cors", credentials: "include" }).catch(() => {}), at);
      const hostile = await opened(8000);
      await leave(hostile, house.origin);
      assert.equal(await whoIs(context), PERSON.name);
      await hostile.close();
      // A browser sends no cookie of the console's from a page at a name: there is nothing to switch off.
      if (!place.besideConsole) return;
      const own = await newContext();
      const page = await own.newPage();
      await page.goto(`${house.origin}/login`);
      await page.fill("#name", OTHER.name);
      await page.fill("#password", OTHER.password);
      await Promise.all([page.waitForURL((url) => url.pathname !== "/login"), page.press("#password", "Enter")]);
      assert.equal(await whoIs(own), OTHER.name);
      const relay = await withoutCheckOfAsker(house.origin, pem);
      const target = await withoutCheckOfCookies("127.0.0.1", pem, []);
      await page.goto(target.origin);
      await leave(page, house.origin);
      assert.equal(await whoIs(own), OTHER.name, "with the check");
      await leave(page, relay.origin);
      assert.equal(await whoIs(own), "401", "without the check");
      await relay.close();
      await target.close();
      await own.close();
    });

    test("a cookie of one app is not for another, and none is planted over ours", async (t) => {
      if (skipped(t)) return;
      const target = await opened(8001);
      const hostile = await opened(8000);
      const set = (page, ...cookies) => page.evaluate((cookies) => fetch(`/set?${encodeURIComponent(cookies.join("|"))}`).then((answer) => answer.status), cookies);
      const cookies = async (page) => (await page.evaluate(async () => (await fetch("/cookies")).text())).split("; ").filter(Boolean).sort();
      const { port } = new URL(target.url());
      const inner = (await context.cookies(target.url())).map((cookie) => cookie.name).find((name) => name.includes("app-"));
      const [sign] = (await stranger.cookies(house.origin)).filter((cookie) => cookie.name.endsWith("fardel"));
      assert.ok(sign && inner, "cookies of ours");
      assert.equal(sign.name, "__Host-Http-fardel");

      // Each hears the cookies that it set, and of the other's none.
      await set(target, "kept=target; Path=/; HttpOnly");
      await set(hostile, "sid=hostile; Path=/");
      assert.deepEqual(await cookies(target), ["kept=target"]);
      assert.deepEqual(await cookies(hostile), ["sid=hostile"]);

      // By answers of an app and by its script: another sign-in, and an app's own cookie.
      const planted = [sign.name, inner].flatMap((name) => ["", "; Domain=127.0.0.1", "; Domain=apps.localhost", "; Domain=localhost"].map((end) => `${name}=${sign.value}; Path=/; Secure; HttpOnly${end}`));
      const before = await context.cookies([house.origin, target.url()]);
      await set(hostile, ...planted);
      await hostile.evaluate((planted) => {
        for (const cookie of planted) document.cookie = cookie.replace("; HttpOnly", "");
      }, planted);
      const ours = (all) => all.filter(({ name }) => name.includes("fardel")).map(({ name, value, domain }) => `${name} ${domain} ${value}`).sort();
      assert.deepEqual(ours(await context.cookies([house.origin, target.url()])), ours(before));
      assert.equal(await whoIs(context), PERSON.name);
      await target.reload();
      assert.equal(await target.title(), "App 8001");
      assert.equal(new URL(target.url()).port, port);
      // Other names pass: the app is told of what its own script sets.
      await hostile.evaluate(() => (document.cookie = "own=script; path=/; secure"));
      assert.ok((await cookies(hostile)).includes("own=script"));

      if (place.besideConsole) {
        // The same answer from a server that drops none: the browser is another user's.
        const copy = await copyOf(context);
        assert.equal(await whoIs(copy), PERSON.name);
        const planter = await withoutCheckOfCookies("127.0.0.1", pem, planted);
        const page = await copy.newPage();
        await page.goto(planter.origin);
        assert.equal(await whoIs(copy), OTHER.name, "without the check");
        await planter.close();
        await copy.close();
      }
      await target.close();
      await hostile.close();
    });

    test("an app that fills a browser with cookies makes its user no other one", async (t) => {
      if (skipped(t)) return;
      const copy = await copyOf(context);
      const hostile = await copy.newPage();
      const first = await opened(8000);
      const { origin } = new URL(first.url());
      await first.close();
      await hostile.goto(`${origin}/`);
      await until(() => `the app in ${hostile.url()}`, async () => (await hostile.title()) === "App 8000");
      const [sign] = (await stranger.cookies(house.origin)).filter((cookie) => cookie.name.endsWith("fardel"));
      const flood = (count, length) => hostile.evaluate(({ count, length, name, value }) => {
        for (let number = 0; number < count; number += 1) document.cookie = `flood-${number}=${"x".repeat(length)}; path=/; secure`;
        document.cookie = `${name}=${value}; path=/; secure`;
        return document.cookie.split("; ").filter((cookie) => cookie.startsWith("flood-")).length;
      }, { count, length, ...sign });
      // More than a head of a request may hold: at a port the console is kept from its visitor until they clear them.
      assert.equal(await flood(100, 3_900), 100);
      assert.equal(await whoIs(copy).catch(() => "no answer"), place.besideConsole ? "no answer" : PERSON.name);
      await copy.clearCookies({ name: /^flood-/ });
      assert.equal(await whoIs(copy), PERSON.name);
      // More than a browser keeps of a host, so that it drops others: they are who they were, or no one.
      assert.ok(await flood(400, 10) < 400, "none was dropped");
      const then = await whoIs(copy);
      assert.ok([PERSON.name, "401"].includes(then), then);
      assert.equal(await whoIs(context), PERSON.name);
      await copy.close();
    });

    test("a ticket enters once, and no other user by it", async (t) => {
      if (skipped(t)) return;
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
    });

    test("an app is closed two seconds after its user has signed out", async (t) => {
      if (skipped(t)) return;
      const app = await opened(8000);
      await watch(app);
      const other = await context.newPage();
      await other.goto(`${house.origin}/`);
      const leftAt = await other.evaluate(async () => {
        const answer = await fetch("/logout", { method: "POST" });
        if (answer.status >= 400) throw new Error(`signing out: ${answer.status}`);
        return performance.timeOrigin + performance.now();
      });
      const took = (await closed(app)) - leftAt;
      assert.ok(took <= 2_000, `${took} ms`);
    });
  });
}
