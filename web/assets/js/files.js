// Sends files into a folder in pieces, several at once, and goes on where one stopped, after a lost connection or a closed
// page. Takes files and directories that are dropped onto the page. The form works without it; then the browser sends
// everything at once.

import { Refused, TUS, base64, human, wait } from "./upload.js";

const PIECE = 16 * 1024 * 1024;
const AT_ONCE = 3;
const SHOWN = 20;
const named = (name) => name.replaceAll("%", "%25");
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** Takes over the form with `data-uploads`, where files go. */
export function attach(form) {
  const said = form.dataset;
  const box = form.querySelector(".progress");
  const bar = box.querySelector("i");
  const words = box.querySelector("p");
  const list = box.querySelector("ul");
  const button = form.querySelector("button");
  const waiting = [];
  let running = 0;
  let sent = 0;
  let failed = 0;

  const show = (text, done = null) => {
    box.hidden = false;
    words.textContent = waiting.length ? `${text} · ${fill(said.saidLeft, { n: waiting.length })}` : text;
    if (done !== null) bar.className = `a w-${Math.floor(done * 100)}`;
  };
  const ask = async (address, options) => {
    const answer = await fetch(address, options);
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    const text = [problem.detail, problem.hint].filter(Boolean).join(" ") || problem.title || `HTTP ${answer.status}`;
    // Of a piece a conflict means "look where you are"; of anything else it is an answer.
    const again = options.method === "PATCH" ? [408, 409, 423, 429, 460] : [408, 423, 429];
    // What came stays until there is room for the rest.
    const stays = problem.code === "quota.exceeded";
    const final = answer.status >= 400 && answer.status < 500 && !again.includes(answer.status);
    throw final || stays ? Object.assign(new Refused(text), { stays }) : new Error(text);
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

  const send = async (one) => {
    const { file } = one;
    const upload = await begin(one);
    let failures = 0;
    const tell = () => show(fill(said.saidSending, { name: file.name, done: human(upload.offset), all: human(file.size) }), file.size ? upload.offset / file.size : 1);
    tell();
    while (upload.offset < file.size) {
      try {
        const piece = file.slice(upload.offset, upload.offset + PIECE);
        const answer = await ask(upload.address, {
          method: "PATCH",
          headers: { ...TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(upload.offset) },
          body: piece,
        });
        upload.offset = Number(answer.headers.get("Upload-Offset") ?? upload.offset + piece.size);
        failures = 0;
      } catch (fault) {
        if (fault instanceof Refused && !fault.stays) localStorage.removeItem(upload.key);
        if (fault instanceof Refused) throw fault;
        failures += 1;
        show(said.saidPaused);
        await wait(Math.min(15000, 500 * 2 ** failures) * (0.7 + Math.random() * 0.6));
        const seen = await fetch(upload.address, { method: "HEAD", headers: TUS }).catch(() => null);
        if (seen?.ok) upload.offset = Number(seen.headers.get("Upload-Offset"));
        else if (seen && seen.status < 500) { localStorage.removeItem(upload.key); throw new Refused(fault.message); }
        continue;
      }
      tell();
    }
    localStorage.removeItem(upload.key);
  };

  const leaving = (event) => event.preventDefault();
  const over = () => {
    removeEventListener("beforeunload", leaving);
    button.disabled = false;
    show(fill(said.saidDone, { n: sent }), 1);
    if (failed) return;
    // A value of a file field is no longer wanted once its files are there.
    form.elements.files.value = "";
    location.assign(`/folders/${said.folder}/files?path=${encodeURIComponent(said.here)}&notice=folder-uploaded&of=${sent}`);
  };
  const work = async () => {
    running += 1;
    for (let one = waiting.shift(); one; one = waiting.shift()) {
      try {
        await send(one);
        sent += 1;
      } catch (fault) {
        failed += 1;
        if (failed > SHOWN) continue;
        const line = document.createElement("li");
        line.className = "fault";
        line.textContent = `${fill(said.saidFailed, { name: one.file.name })} ${fault.message}`;
        list.append(line);
      }
    }
    running -= 1;
    if (running === 0) over();
  };
  const take = (files) => {
    if (files.length === 0) return;
    if (running === 0) {
      sent = 0;
      failed = 0;
      list.replaceChildren();
      addEventListener("beforeunload", leaving);
    }
    waiting.push(...files);
    button.disabled = true;
    for (let more = Math.min(AT_ONCE - running, waiting.length); more > 0; more -= 1) work();
  };

  form.addEventListener("submit", (event) => {
    const files = [...form.elements.files.files];
    if (files.length === 0) return;
    event.preventDefault();
    take(files.map((file) => ({ file, path: said.here })));
  });

  // Directories come as entries, whose files are asked for one after the other.
  const walk = async (entry, path, found) => {
    if (entry.isFile) {
      const file = await new Promise((done, fail) => entry.file(done, fail));
      found.push({ file, path });
      return;
    }
    const below = path ? `${path}/${named(entry.name)}` : named(entry.name);
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (some.length === 0) return;
      for (const one of some) await walk(one, below, found);
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
    for (const entry of entries) await walk(entry, said.here, found).catch(() => null);
    take(found);
  });
}
