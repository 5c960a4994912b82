// A JupyterLab as its own page talks to it, at its own origin: over its addresses for kernels, and over one WebSocket for each
// kernel. Enters the origin as a browser does; draws nothing, and changes nothing of the app.

import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { request } from "node:http";

// Longer than any answer takes here; only a hang reaches it.
const PATIENCE_MS = 30_000;

/// One request; gives status, headers and text. Rejects where the connection breaks.
function ask(origin, method, path, headers, body) {
  return new Promise((done, fail) => {
    const sent = request(`${origin}${path}`, { method, headers, agent: false, timeout: PATIENCE_MS }, (heard) => {
      let text = "";
      heard.setEncoding("utf8");
      heard.on("data", (more) => (text += more));
      heard.on("error", fail);
      heard.on("end", () => done({ status: heard.statusCode, headers: heard.headers, text }));
    });
    sent.on("timeout", () => sent.destroy(new Error(`${path} has no answer`)));
    sent.on("error", fail);
    sent.end(body);
  });
}

/// A WebSocket that is open: `hears` is told each text, and `ended` resolves when it is closed or broken off.
class Line {
  #socket;
  #rest = Buffer.alloc(0);
  #text = "";
  hears = () => {};

  constructor(socket, head) {
    this.#socket = socket;
    this.ended = new Promise((done) => socket.on("close", done));
    socket.on("error", () => {});
    socket.on("data", (bytes) => this.#take(bytes));
    if (head.length > 0) this.#take(head);
  }

  #take(bytes) {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    for (;;) {
      const rest = this.#rest;
      if (rest.length < 2) return;
      const short = rest[1] & 127;
      const begin = short === 126 ? 4 : short === 127 ? 10 : 2;
      if (rest.length < begin) return;
      const length = short === 126 ? rest.readUInt16BE(2) : short === 127 ? Number(rest.readBigUInt64BE(2)) : short;
      if (rest.length < begin + length) return;
      this.#rest = rest.subarray(begin + length);
      this.#frame(rest[0], rest.subarray(begin, begin + length));
    }
  }

  #frame(first, content) {
    const kind = first & 15;
    if (kind === 8) this.close();
    if (kind === 9) this.#send(10, content);
    // Bytes come only to a client that speaks its newer form.
    if (kind > 1) return;
    this.#text += content.toString("utf8");
    if ((first & 128) === 0) return;
    const text = this.#text;
    this.#text = "";
    this.hears(text);
  }

  #send(kind, content) {
    const mask = randomBytes(4);
    const head = content.length < 126 ? Buffer.from([128 | kind, 128 | content.length]) : Buffer.from([128 | kind, 254, content.length >> 8, content.length & 255]);
    this.#socket.write(Buffer.concat([head, mask, content.map((byte, at) => byte ^ mask[at & 3])]));
  }

  say(text) {
    this.#send(1, Buffer.from(text));
  }

  close() {
    this.#socket.destroy();
  }
}

/// The JupyterLab of one session. `entry` is where its user was sent, who has that cookie at the console.
export class Jupyter {
  #cookies;
  // A page that dials again is the same client, to whom what came meanwhile is told.
  session = randomUUID();

  constructor(cookie) {
    this.#cookies = [cookie];
  }

  /// Goes where the console leads, as a tab does.
  async enter(entry) {
    const { origin, pathname, search } = new URL(entry);
    this.origin = origin;
    const tab = { cookie: this.#cookies.join("; "), "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
    const heard = await ask(origin, "GET", `${pathname}${search}`, tab);
    assert.equal(heard.status, 303, `${pathname} answers ${heard.status}: ${heard.text.slice(0, 500)}`);
    this.#cookies.push(...(heard.headers["set-cookie"] ?? []).map((one) => one.split(";")[0]));
  }

  get #headers() {
    return { origin: this.origin, cookie: this.#cookies.join("; "), "sec-fetch-site": "same-origin" };
  }

  /// Opens a notebook with a kernel of its own, as the page does.
  async notebook(path) {
    const body = JSON.stringify({ path, type: "notebook", name: path, kernel: { name: "python3" } });
    const heard = await ask(this.origin, "POST", "/api/sessions", { ...this.#headers, "content-type": "application/json" }, body);
    assert.equal(heard.status, 201, `a notebook is not opened: ${heard.status} ${heard.text.slice(0, 500)}`);
    this.kernel = JSON.parse(heard.text).kernel.id;
  }

  /// Opens a socket to the kernel, and keeps it as `line`. Rejects where the server or the kernel is away.
  async dial() {
    this.line = await new Promise((done, fail) => {
      const path = `/api/kernels/${this.kernel}/channels?session_id=${this.session}`;
      const headers = {
        ...this.#headers,
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": randomBytes(16).toString("base64"),
      };
      const sent = request(`${this.origin}${path}`, { headers, agent: false, timeout: PATIENCE_MS });
      sent.on("upgrade", (_, socket, head) => {
        socket.setTimeout(0);
        done(new Line(socket, head));
      });
      sent.on("response", (heard) => {
        heard.destroy();
        fail(new Error(`no socket: ${heard.statusCode}`));
      });
      sent.on("timeout", () => sent.destroy(new Error("no socket in time")));
      sent.on("error", fail);
      sent.end();
    });
  }

  /// Runs a cell on the open socket; gives what it printed. Rejects where the socket ends before that, or the cell fails.
  run(code) {
    const own = randomUUID();
    const header = { msg_id: own, username: "", session: this.session, msg_type: "execute_request", version: "5.3", date: new Date().toISOString() };
    const content = { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false, stop_on_error: true };
    return new Promise((done, fail) => {
      let printed = "";
      const late = setTimeout(() => fail(new Error(`the cell ${code} is not done`)), PATIENCE_MS);
      const over = (then, what) => {
        clearTimeout(late);
        this.line.hears = () => {};
        then(what);
      };
      this.line.ended.then(() => over(fail, new Error("the socket has ended")));
      this.line.hears = (text) => {
        const said = JSON.parse(text);
        if (said.parent_header?.msg_id !== own) return;
        if (said.msg_type === "stream") printed += said.content.text;
        if (said.msg_type === "error") over(fail, new Error(`${code}: ${said.content.ename}`));
        if (said.msg_type === "status" && said.content.execution_state === "idle") over(done, printed);
      };
      this.line.say(JSON.stringify({ header, parent_header: {}, metadata: {}, channel: "shell", buffers: [], content }));
    });
  }
}
