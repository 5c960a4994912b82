// What the list of files does with keys and with several rows: arrows go from row to row, Space, Shift and Ctrl A select, F2
// renames, Delete moves to the trash. Boxes, links and forms do the same without this file.

import { attach as dialogs, open } from "./dialog.js";

const typing = (element) => element.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

/** Takes over the section that holds the list; `data-writes` is there where its files may be changed. */
export function attach(part) {
  dialogs();
  const list = part.querySelector("tbody");
  const form = part.querySelector("#marked");
  if (!list || !form) return;
  const writes = part.hasAttribute("data-writes");
  const action = form.getAttribute("action");
  const directory = form.elements.path.value;
  const rows = () => [...list.rows];
  const box = (row) => row.querySelector("input[name=id]");
  const link = (row) => row.querySelector("a.nm");
  // Where a range begins.
  let anchor = null;

  // The count of the page hears of one change, however many there are.
  const mark = (some, on) => {
    for (const row of some) box(row).checked = on;
    if (some.length) box(some[0]).dispatchEvent(new Event("change", { bubbles: true }));
  };
  const between = (one, other) => {
    const all = rows();
    const [from, to] = [all.indexOf(one), all.indexOf(other)].sort((a, b) => a - b);
    return all.slice(Math.max(0, from), to + 1);
  };

  // A click with Shift chooses rows, not the text between them.
  list.addEventListener("mousedown", (event) => { if (event.shiftKey && event.target.closest(".mk")) event.preventDefault(); });
  list.addEventListener("click", (event) => {
    const clicked = event.target.closest("input[name=id]");
    if (!clicked) return;
    const row = clicked.closest("tr");
    if (event.shiftKey && anchor?.isConnected) mark(between(anchor, row), clicked.checked);
    anchor = row;
  });
  form.addEventListener("reset", () => { anchor = null; });

  const step = (row, by, grows) => {
    const all = rows();
    const next = all[all.indexOf(row) + by];
    if (!next) return;
    link(next).focus();
    if (!grows) { anchor = next; return; }
    anchor ??= row;
    mark(between(anchor, next), true);
  };
  const toggle = (row, grows) => {
    if (grows && anchor) mark(between(anchor, row), true);
    else mark([row], !box(row).checked);
    anchor = row;
  };
  const rename = (row) => open(`${action}?${new URLSearchParams([["verb", "rename"], ["path", directory], ["id", box(row).value]])}`);
  const trash = (some) => {
    const sent = document.createElement("form");
    sent.method = "post";
    sent.action = action;
    for (const [name, value] of [["verb", "remove"], ["path", directory], ...some.map((row) => ["id", box(row).value])]) {
      const field = sent.appendChild(document.createElement("input"));
      field.type = "hidden";
      field.name = name;
      field.value = value;
    }
    document.body.append(sent);
    sent.submit();
  };

  addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.defaultPrevented || event.altKey || typing(target) || document.querySelector("dialog[open], [popover]:popover-open")) return;
    const row = list.contains(target) ? target.closest("tr") : null;
    const acts = {};
    if (event.ctrlKey || event.metaKey) {
      if (!event.shiftKey && (part.contains(target) || target === document.body)) acts.a = () => mark(rows(), true);
    } else if (row) {
      acts.ArrowDown = () => step(row, 1, event.shiftKey);
      acts.ArrowUp = () => step(row, -1, event.shiftKey);
      // A box and a button have a press of their own.
      if (target.matches("a")) acts[" "] = () => toggle(row, event.shiftKey);
      if (writes) acts.F2 = () => rename(row);
    }
    const marked = rows().filter((one) => box(one).checked);
    const going = marked.length ? marked : row ? [row] : [];
    if (writes && going.length && !event.ctrlKey && !event.metaKey && !event.shiftKey) acts.Delete = () => trash(going);
    const act = acts[key.length === 1 ? key.toLowerCase() : key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
