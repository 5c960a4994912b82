// Sends files into a folder in pieces, several at once, and goes on where one stopped, after a lost connection, a pause or a
// closed page. Takes files and directories that are dropped onto the page. The form works without it; then the browser sends
// everything at once.

import { Refused, TUS, base64, human, wait } from "./upload.js";

// The first piece of a file, and the largest that follows one which came quickly: each is on disk before its answer, so that
// larger ones wait less often. A larger one that fails is not tried again: a proxy may refuse what is as long.
const PIECE = 16 * 1024 * 1024;
const MOST = 64 * 1024 * 1024;
const QUICK = 2000;
const AT_ONCE = 3;
const SHOWN = 20;
// A speed is that of the last seconds: longer, and a change shows late; shorter, and the number jumps.
const MEASURED = 8000;
const named = (name) => name.replaceAll("%", "%25");
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

// How long something takes, in the words of the page's language.
const span = (seconds) => {
  const [value, unit] = seconds < 90 ? [Math.ceil(seconds), "second"] : seconds < 5400 ? [Math.round(seconds / 60), "minute"] : [Math.round(seconds / 360) / 10, "hour"];
  return new Intl.NumberFormat(document.documentElement.lang, { style: "unit", unit, unitDisplay: "short" }).format(value);
};

// Bytes in a second, from how far a file was over the last seconds; 0 while that is not known.
class Meter {
  #seen = [];

  reset() { this.#seen = []; }

  at(offset) {
    const now = performance.now();
    this.#seen.push([now, offset]);
    while (this.#seen.length > 2 && now - this.#seen[0][0] > MEASURED) this.#seen.shift();
    const [then, before] = this.#seen[0];
    return now - then > 500 ? Math.max(0, ((offset - before) * 1000) / (now - then)) : 0;
  }
}

/** Takes over the form with `data-uploads`, where files go. */
export function attach(form) {
  const said = form.dataset;
  const box = form.querySelector(".progress");
  const bar = box.querySelector("i");
  const words = box.querySelector("p");
  const sending = box.querySelector(".sending");
  const list = box.querySelector(".named");
  const button = form.querySelector("button");
  const waiting = [];
  const under = new Set();
  let workers = 0;
  let sent = 0;
  let failed = 0;
  // Bytes of all files that were taken, and of those that are over.
  let all = 0;
  let over = 0;

  const show = () => {
    box.hidden = false;
    const text = fill(said.saidLeft, { n: waiting.length + under.size });
    if (words.textContent !== text) words.textContent = text;
    const done = [...under].reduce((sum, one) => sum + one.offset, over);
    bar.className = `a w-${all ? Math.floor((done / all) * 100) : 100}`;
  };
  const fault = (status, problem, method) => {
    const text = [problem.detail, problem.hint].filter(Boolean).join(" ") || problem.title || `HTTP ${status}`;
    // Of a piece a conflict means "look where you are"; of anything else it is an answer.
    const again = method === "PATCH" ? [408, 409, 423, 429, 460] : [408, 423, 429];
    // What came stays until there is room for the rest.
    const stays = problem.code === "quota.exceeded";
    // A proxy's answer: ours has a code.
    if (method === "PATCH" && status === 413 && !problem.code) return Object.assign(new Refused(text), { isTooLong: true });
    const final = status >= 400 && status < 500 && !again.includes(status);
    return final || stays ? Object.assign(new Refused(text), { stays }) : new Error(text);
  };
  const ask = async (address, options) => {
    const answer = await fetch(address, options);
    if (answer.ok) return answer;
    throw fault(answer.status, await answer.json().catch(() => ({})), options.method);
  };

  // One piece; `tell` hears how much of it is on its way, which a fetch does not say.
  const patch = (upload, piece, tell) => new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    upload.request = request;
    request.open("PATCH", upload.address);
    const headers = { ...TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(upload.offset) };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => tell(event.loaded);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) return done(Number(request.getResponseHeader("Upload-Offset") ?? upload.offset + piece.size));
      let problem = {};
      try { problem = JSON.parse(request.responseText); } catch { /* no words of ours */ }
      return fail(fault(request.status, problem, "PATCH"));
    };
    request.onerror = request.onabort = request.ontimeout = () => fail(new Error(said.saidPaused));
    request.send(piece);
  });

  // The row of a file on its way: its name, how far and how fast it is, and a button that pauses it.
  const rowOf = (file) => {
    const row = { held: false, wake: null, meter: new Meter(), element: document.createElement("li") };
    const name = document.createElement("b");
    name.textContent = file.name;
    const text = document.createElement("span");
    const press = document.createElement("button");
    press.type = "button";
    press.className = "btn s gh";
    const track = document.createElement("div");
    track.className = "bar";
    const rail = track.appendChild(document.createElement("i"));
    row.say = (words, done = null) => {
      text.textContent = words;
      if (done !== null) rail.className = `a w-${Math.floor(done * 100)}`;
    };
    const label = () => {
      press.textContent = row.held ? said.saidResume : said.saidPause;
      press.setAttribute("aria-label", fill(row.held ? said.saidResumeNamed : said.saidPauseNamed, { name: file.name }));
    };
    press.addEventListener("click", () => {
      row.held = !row.held;
      label();
      if (row.held) row.request?.();
      else row.wake?.();
    });
    label();
    row.element.append(name, text, press, track);
    sending.append(row.element);
    return row;
  };

  const begin = async ({ file, path }) => {
    const overwrite = form.elements.overwrite.checked;
    const key = `files:${said.folder}:${path}:${file.name}:${file.size}:${file.lastModified}:${overwrite}`;
    const known = localStorage.getItem(key);
    if (known) {
      const seen = await fetch(known, { method: "HEAD", headers: TUS });
      if (seen.ok) return { key, address: known, offset: Number(seen.headers.get("Upload-Offset")) };
      localStorage.removeItem(key);
    }
    const pairs = { filename: file.name, path, mtime: String(file.lastModified) };
    if (overwrite) pairs.overwrite = "true";
    const made = await ask(said.uploads, {
      method: "POST",
      headers: {
        ...TUS,
        "Upload-Length": String(file.size),
        "Upload-Metadata": Object.entries(pairs).map(([name, value]) => `${name} ${base64(value)}`).join(","),
      },
    });
    const address = new URL(made.headers.get("Location"), location.href).pathname;
    if (file.size > 0) localStorage.setItem(key, address);
    return { key, address, offset: 0 };
  };
  // How far the server is; it may have kept a part of a piece that broke off.
  const look = async (upload, fault) => {
    const seen = await fetch(upload.address, { method: "HEAD", headers: TUS }).catch(() => null);
    if (seen?.ok) upload.offset = Number(seen.headers.get("Upload-Offset"));
    else if (seen && seen.status < 500) {
      localStorage.removeItem(upload.key);
      throw new Refused(fault);
    }
  };

  const send = async (one, row) => {
    const { file } = one;
    const upload = await begin(one);
    let failures = 0;
    let size = PIECE;
    let most = MOST;
    row.request = () => upload.request?.abort();
    const tell = (ahead = 0) => {
      one.offset = Math.min(file.size, upload.offset + ahead);
      const speed = row.meter.at(one.offset);
      const done = fill(said.saidSending, { done: human(one.offset), all: human(file.size) });
      const rate = speed > 0 ? ` · ${fill(said.saidRate, { speed: human(speed), time: span((file.size - one.offset) / speed) })}` : "";
      row.say(done + rate, file.size ? one.offset / file.size : 1);
      show();
    };
    tell();
    while (upload.offset < file.size) {
      if (row.held) {
        row.say(`${fill(said.saidSending, { done: human(upload.offset), all: human(file.size) })} · ${said.saidHeld}`);
        await new Promise((wake) => { row.wake = wake; });
        row.wake = null;
        row.meter.reset();
        await look(upload, said.saidPaused);
        tell();
        continue;
      }
      try {
        const piece = file.slice(upload.offset, upload.offset + size);
        const from = performance.now();
        upload.offset = await patch(upload, piece, tell);
        failures = 0;
        if (performance.now() - from < QUICK) size = Math.min(most, size * 2);
      } catch (fault) {
        const isLarger = size > PIECE && !row.held;
        if (isLarger) [most, size] = [size / 2, PIECE];
        if (isLarger && fault.isTooLong) {
          await look(upload, fault.message);
          continue;
        }
        if (fault instanceof Refused && !fault.stays) localStorage.removeItem(upload.key);
        if (fault instanceof Refused) throw fault;
        if (row.held) continue;
        failures += 1;
        row.say(said.saidPaused);
        await wait(Math.min(15000, 500 * 2 ** failures) * (0.7 + Math.random() * 0.6));
        row.meter.reset();
        await look(upload, fault.message);
        continue;
      }
      tell();
    }
    localStorage.removeItem(upload.key);
  };

  const leaving = (event) => event.preventDefault();
  const end = () => {
    removeEventListener("beforeunload", leaving);
    button.disabled = false;
    words.textContent = fill(said.saidDone, { n: sent });
    if (failed) return;
    // A value of a file field is no longer wanted once its files are there.
    form.elements.files.value = "";
    location.assign(`/folders/${said.folder}/files?path=${encodeURIComponent(said.here)}&notice=folder-uploaded&of=${sent}`);
  };
  const work = async () => {
    for (let one = waiting.shift(); one; one = waiting.shift()) {
      under.add(one);
      const row = rowOf(one.file);
      try {
        await send(one, row);
        sent += 1;
      } catch (fault) {
        failed += 1;
        if (failed <= SHOWN) {
          const line = document.createElement("li");
          line.className = "fault";
          line.textContent = `${fill(said.saidFailed, { name: one.file.name })} ${fault.message}`;
          list.append(line);
        }
      }
      row.element.remove();
      under.delete(one);
      over += one.file.size;
      show();
    }
    workers -= 1;
    if (workers === 0) end();
  };
  const take = (files) => {
    if (files.length === 0) return;
    if (workers === 0) {
      sent = failed = all = over = 0;
      list.replaceChildren();
      addEventListener("beforeunload", leaving);
    }
    for (const one of files) all += one.file.size;
    waiting.push(...files.map((one) => ({ ...one, offset: 0 })));
    button.disabled = true;
    const more = Math.min(AT_ONCE - workers, waiting.length);
    for (let begun = 0; begun < more; begun += 1) {
      workers += 1;
      work();
    }
    show();
  };

  form.addEventListener("submit", (event) => {
    const files = [...form.elements.files.files];
    if (files.length === 0) return;
    event.preventDefault();
    take(files.map((file) => ({ file, path: said.here })));
  });

  // A directory without files has no upload that makes it, and perhaps none that makes those above it.
  const make = async (path) => {
    const parts = path.split("/");
    const address = said.uploads.replace(/uploads$/, "mkdir");
    for (let end = said.here ? said.here.split("/").length + 1 : 1; end <= parts.length; end += 1) {
      const body = JSON.stringify({ path: parts.slice(0, end).join("/") });
      // One that is there already is refused, and is what is wanted.
      await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
    }
  };
  // Directories come as entries, whose files are asked for one after the other; those without any are told of besides.
  const walk = async (entry, path, found, empty) => {
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail));
      found.push({ file, path });
      return;
    }
    const below = path ? `${path}/${named(entry.name)}` : named(entry.name);
    const reader = entry.createReader();
    for (let count = 0; ;) {
      const some = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (some.length === 0 && count === 0) empty.push(below);
      if (some.length === 0) return;
      count += some.length;
      for (const one of some) await walk(one, below, found, empty);
    }
  };
  const main = document.querySelector("main");
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  main.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    main.classList.add("drops");
  });
  main.addEventListener("dragleave", (event) => { if (!main.contains(event.relatedTarget)) main.classList.remove("drops"); });
  main.addEventListener("drop", async (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    main.classList.remove("drops");
    // They are gone once this handler waits.
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const plain = entries.length ? [] : [...event.dataTransfer.files];
    const found = plain.map((file) => ({ file, path: said.here }));
    const empty = [];
    for (const entry of entries) await walk(entry, said.here, found, empty).catch(() => null);
    for (const path of empty) await make(path);
    if (found.length === 0 && empty.length > 0) location.reload();
    take(found);
  });
}
