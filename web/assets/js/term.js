// The terminals of one session: xterm on WebSockets that speak v1.term. First byte of every message is the
// channel: 0 what is typed, 1 what is shown, 2 control as JSON. The session keeps the last part of its
// output, so a new connection starts with it and nothing is lost by a reload or a restart of the server.
// The first terminal is the session's own; further ones are shells that end with the page.

import { Terminal, FitAddon, SearchAddon, Unicode11Addon, WebLinksAddon, WebglAddon } from "./xterm.js";

const nonce = document.querySelector("meta[name=fardel-nonce]")?.content;
// xterm makes <style> elements; the policy lets in those that carry this answer's nonce, and only those.
const make = document.createElement.bind(document);
document.createElement = (name, options) => {
  const element = make(name, options);
  if (nonce && String(name).toLowerCase() === "style") element.nonce = nonce;
  return element;
};
// Without WebGL it also gives cells of 24-bit colours their `style` as an attribute, which the policy refuses from
// scripts as from markup. The same declarations through the element's own object are allowed.
const set = Element.prototype.setAttribute;
Element.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else set.call(this, name, value);
};

const encode = new TextEncoder();
const message = (channel, bytes) => {
  const whole = new Uint8Array(bytes.length + 1);
  whole[0] = channel;
  whole.set(bytes, 1);
  return whole;
};
const control = (words) => message(2, encode.encode(JSON.stringify(words)));

// The control sequence by which the session says how many bytes were skipped.
const SKIPPED = 7300;
// After so many drawn bytes the server is told; it keeps at most 16 KiB on the way.
const TELL = 4 << 10;
// Closed because the caller may go on no longer.
const DISMISSED = 1008;
const MOST_TERMINALS = 8;

const kept = {
  get: (name, other) => { try { return localStorage.getItem(name) ?? other; } catch { return other; } },
  set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } },
};
const fontSize = () => Math.min(32, Math.max(8, Number(kept.get("term-font", "13")) || 13));
const reader = () => kept.get("term-reader", "") === "1";
const bytesWords = (bytes) => bytes < 1 << 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;

/// One terminal inside `box`, connected to `url` for as long as the box is on the page. `told` hears of every
/// change of what the footer says.
function open(box, url, words, told) {
  const style = getComputedStyle(box.parentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const term = new Terminal({
    allowProposedApi: true,
    // Rows as text beside the picture, for readers of the screen; slow, so only where it is wanted.
    screenReaderMode: reader(),
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: style.fontFamily,
    fontSize: fontSize(),
    lineHeight: 1.25,
    scrollback: 10000,
    theme: {
      background: colour("--t-bg"), foreground: colour("--t-ink"), cursor: colour("--t-ink"),
      green: colour("--t-green"), blue: colour("--t-blue"), yellow: colour("--t-amber"), brightBlack: colour("--t-dim"),
      selectionBackground: "#3b4a6b",
    },
  });
  const fit = new FitAddon();
  const search = new SearchAddon();
  for (const addon of [fit, search, new Unicode11Addon(), new WebLinksAddon()]) term.loadAddon(addon);
  term.unicode.activeVersion = "11";

  const self = { term, search, state: { text: "", look: "wait" }, size: "", over: false };
  const say = (text, look) => { self.state = { text, look }; told(self); };
  say(words.opening, "wait");

  let socket = null;
  let tries = 0;
  const send = (bytes) => socket?.readyState === WebSocket.OPEN && socket.send(bytes);
  // Keys pressed while the connection is being made arrive when it stands; after a long gap nobody
  // remembers what was typed into the dark, so those are dropped.
  let waiting = [];
  const type = (bytes) => {
    if (socket?.readyState === WebSocket.OPEN) send(message(0, bytes));
    else if (!self.over && waiting.length < 1000) waiting.push({ at: Date.now(), bytes });
  };
  const flush = () => {
    for (const { at, bytes } of waiting) if (Date.now() - at < 10000) send(message(0, bytes));
    waiting = [];
  };
  self.resize = () => {
    if (!box.isConnected || !box.clientWidth) return;
    fit.fit();
    self.size = `${term.cols} × ${term.rows}`;
    told(self);
    send(control({ resize: [term.cols, term.rows] }));
  };
  term.parser.registerOscHandler(SKIPPED, (bytes) => {
    say(words.skipped.replace("{size}", bytesWords(Number(bytes))), "wait");
    setTimeout(() => { if (self.state.look === "wait" && socket?.readyState === WebSocket.OPEN) say(words.connected, ""); }, 4000);
    return true;
  });

  const connect = () => {
    if (!box.isConnected || self.over) return;
    const address = new URL(url, location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("cols", term.cols);
    address.searchParams.set("rows", term.rows);
    const mine = new WebSocket(address, "v1.term");
    socket = mine;
    socket.binaryType = "arraybuffer";
    let first = true;
    let gone = "";
    // How much this connection brought is drawn, and how much of that was told.
    let drawn = 0;
    let toldOf = 0;
    socket.onopen = () => {
      tries = 0;
      say(words.connected, "");
      send(control({ drawn: 0 }));
      self.resize();
      flush();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") return;
      const bytes = new Uint8Array(data);
      if (bytes[0] === 1 || bytes[0] === 3) {
        // The first bytes of a connection repeat what the session has kept; start from a clean screen.
        if (first) term.reset();
        first = false;
        term.write(bytes.subarray(1), () => {
          drawn += bytes.length - 1;
          if (drawn - toldOf < TELL || socket !== mine) return;
          toldOf = drawn;
          send(control({ drawn }));
        });
      } else if (bytes[0] === 2) {
        const said = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
        if ("exit" in said) self.over = true;
        if ("gone" in said) gone = said.gone;
      }
    };
    socket.onclose = ({ code }) => {
      if (self.closed) return;
      if (self.over || code === DISMISSED) {
        self.over = true;
        say(code === DISMISSED && gone ? gone : words.ended, "off");
        return;
      }
      say(words.again, "wait");
      setTimeout(connect, Math.min(8000, 250 * 2 ** tries++) * (0.7 + Math.random() * 0.6));
    };
  };
  self.close = () => { self.closed = self.over = true; socket?.close(); term.dispose(); };

  term.open(box);
  // On screens with other than one pixel to a dot WebGL was seen to draw nothing, or cut the last line.
  if (devicePixelRatio === 1) try {
    const gl = new WebglAddon();
    gl.onContextLoss(() => gl.dispose());
    term.loadAddon(gl);
  } catch { /* no WebGL: the plain renderer draws the same */ }
  term.attachCustomKeyEventHandler((event) => {
    if (event.type !== "keydown") return true;
    if (event.key === "Escape" && event.shiftKey) {
      term.blur();
      document.querySelector(".tabs a[aria-current]")?.focus();
      return false;
    }
    if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "c" && term.hasSelection()) {
      navigator.clipboard?.writeText(term.getSelection());
      event.preventDefault();
      return false;
    }
    if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "f") {
      event.preventDefault();
      document.querySelector("[data-term=find]")?.click();
      return false;
    }
    return true;
  });
  // With text for readers of the screen xterm leaves out what comes without a key: dictation, emoji pickers.
  let key = false;
  term.textarea.addEventListener("keydown", () => { key = true; }, true);
  term.textarea.addEventListener("keyup", () => { key = false; }, true);
  term.textarea.addEventListener("input", (event) => {
    if (term.options.screenReaderMode && event.inputType === "insertText" && event.data && !key && !event.isComposing) term.input(event.data, true);
  });
  term.onData((text) => type(encode.encode(text)));
  term.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  new ResizeObserver(self.resize).observe(box);
  fit.fit();
  connect();
  return self;
}

/// Opens the session's terminal inside that element, and the bars around it.
export function attach(place) {
  const data = place.dataset;
  const state = document.querySelector("#term-state");
  const size = document.querySelector("#term-size");
  const note = document.querySelector("#term-note");
  const survives = note?.textContent;
  const panes = [];
  let shown = null;
  let number = 1;
  const told = (self) => {
    if (self !== shown?.self || !state) return;
    state.textContent = self.state.text;
    state.className = `live ${self.state.look}`;
    if (size) size.textContent = self.size;
  };

  const bar = make("div");
  bar.className = "panes";
  bar.hidden = true;
  const show = (pane) => {
    shown = pane;
    for (const one of panes) {
      one.box.hidden = one !== pane;
      one.tab.setAttribute("aria-pressed", String(one === pane));
    }
    if (note) note.textContent = pane === panes[0] ? survives : note.dataset.beside;
    told(pane.self ?? {});
    pane.self?.resize();
    pane.self?.term.focus();
  };
  const close = (pane) => {
    const at = panes.indexOf(pane);
    if (at < 1) return;
    panes.splice(at, 1);
    pane.self.close();
    pane.box.remove();
    pane.item.remove();
    bar.hidden = panes.length < 2;
    show(panes[at - 1]);
  };
  const add = (url, name, ended) => {
    const box = make("div");
    box.className = "pane";
    const item = make("span");
    const tab = make("button");
    tab.type = "button";
    tab.textContent = name;
    item.append(tab);
    bar.append(item);
    const pane = { box, tab, item };
    if (panes.length > 0) {
      const cross = make("button");
      cross.type = "button";
      cross.className = "x";
      cross.textContent = "×";
      cross.setAttribute("aria-label", data.close.replace("{name}", name));
      cross.addEventListener("click", () => close(pane));
      item.append(cross);
    }
    panes.push(pane);
    place.append(box);
    tab.addEventListener("click", () => show(pane));
    bar.hidden = panes.length < 2;
    for (const one of panes) one.box.hidden = one !== pane;
    const words = { opening: data.opening, connected: data.connected, again: data.again, ended, skipped: data.skipped };
    shown = pane;
    pane.self = open(box, url, words, (self) => { pane.self = self; told(self); });
    return pane;
  };

  // ---- search ------------------------------------------------------------------------------------
  const find = make("div");
  find.className = "find";
  find.hidden = true;
  const field = make("input");
  field.type = "search";
  field.className = "inp";
  field.autocomplete = "off";
  const button = document.querySelector("[data-term=find]");
  field.setAttribute("aria-label", button?.getAttribute("aria-label") ?? "");
  const count = make("span");
  count.setAttribute("role", "status");
  find.append(field, count);
  const colours = { matchBackground: "#5b4a1e", activeMatchBackground: "#a8741a", matchOverviewRuler: "#a8741a", activeMatchColorOverviewRuler: "#a8741a" };
  const look = (forward, more) => {
    const search = shown?.self.search;
    if (!search) return;
    const options = { decorations: colours, incremental: more };
    const found = field.value !== "" && (forward ? search.findNext(field.value, options) : search.findPrevious(field.value, options));
    if (field.value === "") { search.clearDecorations(); count.textContent = ""; } else if (!found) count.textContent = data.none;
  };
  const watched = new WeakSet();
  const watch = (self) => {
    if (watched.has(self)) return;
    watched.add(self);
    self.search.onDidChangeResults(({ resultIndex, resultCount }) => {
      if (self !== shown?.self || field.value === "") return;
      count.textContent = resultCount > 0 ? data.found.replace("{at}", Math.max(0, resultIndex) + 1).replace("{all}", resultCount) : data.none;
    });
  };
  field.addEventListener("input", () => look(false, true));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); look(event.shiftKey); }
    if (event.key === "Escape") { event.preventDefault(); find.hidden = true; shown?.self.search.clearDecorations(); shown?.self.term.focus(); }
  });

  // ---- the bar of the card -----------------------------------------------------------------------
  const full = () => {
    const whole = place.parentElement;
    const on = whole.classList.toggle("fullterm");
    shown?.self.resize();
    shown?.self.term.focus();
    if (!on) return;
    const leave = (event) => {
      if (event.key !== "Escape" || !event.shiftKey) return;
      whole.classList.remove("fullterm");
      removeEventListener("keydown", leave, true);
      shown?.self.resize();
    };
    addEventListener("keydown", leave, true);
  };
  const acts = {
    full,
    new: () => {
      if (panes.length >= MOST_TERMINALS) return;
      number += 1;
      const pane = add(data.shell, data.next.replace("{n}", number), data.shellEnded);
      show(pane);
    },
    find: () => {
      find.hidden = !find.hidden && document.activeElement === field;
      if (find.hidden) { shown?.self.term.focus(); return; }
      watch(shown.self);
      field.focus();
      field.select();
    },
  };
  const onClick = (event) => {
    if (!place.isConnected) { document.removeEventListener("click", onClick); return; }
    const act = event.target.closest("[data-term]")?.dataset.term;
    if (act) acts[act]();
  };
  document.addEventListener("click", onClick);
  const font = document.querySelector("#term-font");
  const read = document.querySelector("#term-reader");
  if (font) {
    font.value = fontSize();
    font.addEventListener("input", () => {
      kept.set("term-font", font.value);
      for (const pane of panes) { pane.self.term.options.fontSize = fontSize(); pane.self.resize(); }
    });
  }
  if (read) {
    read.checked = reader();
    read.addEventListener("change", () => {
      kept.set("term-reader", read.checked ? "1" : "");
      for (const pane of panes) pane.self.term.options.screenReaderMode = read.checked;
    });
  }

  // Words are drawn to a grid, so the font must be there before the first one, with its letters beyond ASCII.
  document.fonts.load(`13px ${getComputedStyle(place).fontFamily}`, "a\u00e9").finally(() => {
    place.prepend(bar, find);
    const first = add(data.url, data.first, data.ended);
    shown = first;
    told(first.self);
    if (!document.activeElement || document.activeElement === document.body) first.self.term.focus();
  });
}
