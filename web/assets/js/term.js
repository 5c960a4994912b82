// The terminal of one session: xterm on a WebSocket that speaks v1.term. First byte of every message is the
// channel: 0 what is typed, 1 what is shown, 2 control as JSON. The session keeps the last part of its
// output, so a new connection starts with it and nothing is lost by a reload or a restart of the server.

import { Terminal, FitAddon, SearchAddon, Unicode11Addon, WebLinksAddon, WebglAddon } from "./xterm.js";

const nonce = document.querySelector("meta[name=fardel-nonce]")?.content;
// xterm makes <style> elements; the policy lets in those that carry this answer's nonce, and only those.
const make = document.createElement.bind(document);
document.createElement = (name, options) => {
  const element = make(name, options);
  if (nonce && String(name).toLowerCase() === "style") element.nonce = nonce;
  return element;
};

const encode = new TextEncoder();
const message = (channel, bytes) => {
  const whole = new Uint8Array(bytes.length + 1);
  whole[0] = channel;
  whole.set(bytes, 1);
  return whole;
};

/** Opens the terminal inside that element and keeps it connected while the element is on the page. */
export function attach(place) {
  const style = getComputedStyle(place);
  const colour = (name) => style.getPropertyValue(name).trim();
  const term = new Terminal({
    allowProposedApi: true,
    // Rows as text beside the picture: a picture alone is silent.
    screenReaderMode: true,
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: style.fontFamily,
    fontSize: 13,
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

  const state = document.querySelector("#term-state");
  const size = document.querySelector("#term-size");
  const say = (text, look) => {
    if (!state) return;
    state.textContent = text;
    state.className = `live ${look}`;
  };

  let socket = null;
  let tries = 0;
  let over = false;
  const send = (channel, bytes) => socket?.readyState === WebSocket.OPEN && socket.send(message(channel, bytes));
  // Keys pressed while the connection is being made arrive when it stands; after a long gap nobody
  // remembers what was typed into the dark, so those are dropped.
  let waiting = [];
  const type = (bytes) => {
    if (socket?.readyState === WebSocket.OPEN) send(0, bytes);
    else if (!over && waiting.length < 1000) waiting.push({ at: Date.now(), bytes });
  };
  const flush = () => {
    for (const { at, bytes } of waiting) if (Date.now() - at < 10000) send(0, bytes);
    waiting = [];
  };
  const resize = () => {
    if (!place.isConnected || !place.clientWidth) return;
    fit.fit();
    if (size) size.textContent = `${term.cols} × ${term.rows}`;
    send(2, encode.encode(JSON.stringify({ resize: [term.cols, term.rows] })));
  };

  const connect = () => {
    if (!place.isConnected || over) return;
    const address = new URL(place.dataset.url, location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("cols", term.cols);
    address.searchParams.set("rows", term.rows);
    socket = new WebSocket(address, "v1.term");
    socket.binaryType = "arraybuffer";
    let first = true;
    socket.onopen = () => { tries = 0; say(place.dataset.connected, ""); resize(); flush(); };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") return;
      const bytes = new Uint8Array(data);
      if (bytes[0] === 1) {
        // The first bytes of a connection repeat what the session has kept; start from a clean screen.
        if (first) term.reset();
        first = false;
        term.write(bytes.subarray(1));
      } else if (bytes[0] === 2) {
        const control = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
        if ("exit" in control || "exit_code" in control || control.ended) over = true;
      }
    };
    socket.onclose = ({ code }) => {
      if (over || code === 1000) {
        over = true;
        say(place.dataset.ended, "off");
        return;
      }
      say(place.dataset.again, "wait");
      setTimeout(connect, Math.min(8000, 250 * 2 ** tries++) * (0.7 + Math.random() * 0.6));
    };
  };

  // Words are drawn to a grid, so the font must be there before the first one.
  document.fonts.load(`13px ${style.fontFamily}`).finally(() => {
    term.open(place);
    try {
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
      return true;
    });
    term.onData((text) => type(encode.encode(text)));
    term.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    new ResizeObserver(resize).observe(place);
    fit.fit();
    connect();
    if (!document.activeElement || document.activeElement === document.body) term.focus();
  });

  document.querySelector("[data-full]")?.addEventListener("click", () => {
    const whole = place.parentElement;
    const on = whole.classList.toggle("fullterm");
    resize();
    term.focus();
    if (on) {
      const leave = (event) => {
        if (event.key !== "Escape" || !event.shiftKey) return;
        whole.classList.remove("fullterm");
        removeEventListener("keydown", leave, true);
        resize();
      };
      addEventListener("keydown", leave, true);
    }
  });
}
