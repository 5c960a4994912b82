// What every page does with script: says how old its values are, keys, the palette, copying, the launch
// form's handles. Pages are complete without it. Never writes markup from text: nodes only.

const words = document.body.dataset;
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const typing = (element) => element.closest("input, textarea, select, [contenteditable], .xterm");

// ---- live or not ---------------------------------------------------------------------------------
const sign = one("#live");
if (sign && one("#stream")) {
  let heard = Date.now();
  let lost = false;
  // A browser may end the network of a page that is left while the page still listens, and htmx calls that an error. So
  // the page ends its stream itself; where it stays all the same (a download, a question before leaving), the stream
  // comes back by itself.
  for (const name of ["beforeunload", "pagehide"]) addEventListener(name, () => one("#stream")?._htmx?.sse?.abortController?.abort());
  const show = () => {
    const age = Math.round((Date.now() - heard) / 1000);
    sign.classList.toggle("lost", lost);
    const text = lost ? `${words.lost} ${words.age.replace("{n}", age)}` : words.live;
    if (sign.textContent !== text) sign.textContent = text;
  };
  // A stream without a message for 40 s has lost its heartbeat, even if the socket is open.
  setInterval(() => { lost ||= Date.now() - heard > 40000 && !document.hidden; show(); }, 1000);
  const fresh = () => { heard = Date.now(); lost = false; show(); };
  for (const name of ["htmx:sse:after:connection", "htmx:sse:after:message", "beat"]) document.addEventListener(name, fresh);
  for (const name of ["htmx:sse:error", "htmx:sse:before:connection"]) {
    document.addEventListener(name, (event) => {
      if (name.endsWith("error") || event.detail?.connection?.attempt > 0) { lost = !document.hidden; show(); }
    });
  }
}

// The menu's numbers stand twice (side and sheet); the stream sends them once.
const counts = one("#counts");
if (counts) {
  new MutationObserver(() => {
    const numbers = counts.textContent.trim().split(" ");
    for (const place of all("[data-count]")) {
      place.textContent = numbers[place.dataset.count];
      place.hidden = place.textContent === "0";
    }
  }).observe(counts, { childList: true, characterData: true, subtree: true });
}

// A word about what was just done is said once, not again after a reload.
if (location.search.includes("notice=")) {
  const address = new URL(location.href);
  address.searchParams.delete("notice");
  address.searchParams.delete("of");
  address.searchParams.delete("undo");
  history.replaceState(null, "", address);
}

// The word about what was done to a session leaves once its state has moved on from there, read by then. On the page of
// a GPU that is when another number of sessions runs on it.
const said = one("main > .notice");
const state = one("h1 > #state") ?? one("#slices");
if (said && state) {
  const stands = () => (state.id === "slices" ? state.querySelectorAll("tbody tr").length : state.textContent.trim());
  const [then, from] = [stands(), Date.now()];
  const watch = new MutationObserver(() => {
    if (stands() === then) return;
    watch.disconnect();
    setTimeout(() => said.remove(), Math.max(0, 6000 - (Date.now() - from)));
  });
  watch.observe(state, { childList: true, characterData: true, subtree: true });
}

// A form of this page that leads back to this page leaves it where it was; the word about it stays in sight.
try {
  const [path, top, at] = JSON.parse(sessionStorage.getItem("place") ?? "[]");
  sessionStorage.removeItem("place");
  if (path === location.pathname && Date.now() - at < 15000 && !location.hash) {
    one("main > .notice")?.classList.add("float");
    scrollTo({ top, behavior: "instant" });
  }
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post" || scrollY < 1) return;
    sessionStorage.setItem("place", JSON.stringify([location.pathname, scrollY, Date.now()]));
  });
} catch { /* private window */ }

// A log that stands at its end stays there while lines arrive.
const follow = () => {
  const log = one("#log");
  if (!log || log.dataset.followed) return;
  log.dataset.followed = "1";
  let low = true;
  log.addEventListener("scroll", () => { low = log.scrollHeight - log.scrollTop - log.clientHeight < 24; });
  const down = () => { if (low) log.scrollTop = log.scrollHeight; };
  new MutationObserver(down).observe(log, { childList: true, characterData: true, subtree: true });
  down();
};

// What was searched for in a log is marked where it stands; a browser without such marks shows the lines alone. More
// marks than these are no help.
const MARKS = 2000;
const wanted = new URLSearchParams(location.search).get("q")?.toLowerCase();
const written = one("#log")?.firstChild;
if (wanted && written && globalThis.Highlight) {
  const marks = new Highlight();
  const text = written.data.toLowerCase();
  for (let at = text.indexOf(wanted); at >= 0 && marks.size < MARKS; at = text.indexOf(wanted, at + wanted.length)) {
    marks.add(new StaticRange({ startContainer: written, startOffset: at, endContainer: written, endOffset: at + wanted.length }));
  }
  CSS.highlights.set("sought", marks);
}

// Parts with a module of their own load it when they appear.
const modules = () => {
  for (const part of all("[data-module]")) {
    const address = part.dataset.module;
    part.removeAttribute("data-module");
    import(address).then((module) => module.attach(part));
  }
  follow();
  sliders();
};
document.addEventListener("htmx:after:swap", modules);

// Picking from such a list shows it; the button beside it is for those without script.
document.addEventListener("change", (event) => event.target.closest("select[data-go]")?.form.requestSubmit());

// ---- copying -------------------------------------------------------------------------------------
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = one(button.dataset.copy);
  if (!source) return;
  try {
    await navigator.clipboard.writeText(source.textContent.trim());
  } catch {
    // Plain HTTP has no clipboard; a selection is the next best.
    getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
  const label = button.getAttribute("aria-label");
  button.setAttribute("aria-label", words.copied);
  button.classList.add("done");
  setTimeout(() => { button.setAttribute("aria-label", label ?? ""); button.classList.remove("done"); }, 1600);
});

// ---- marked rows ---------------------------------------------------------------------------------
const marked = one("#marked");
if (marked) {
  const count = one("#marked-count");
  const boxes = () => all("input[name=id]");
  const tell = () => {
    const chosen = boxes().filter((box) => box.checked);
    const on = chosen.length;
    // A row may stand for many: the replicas of one launch.
    const things = chosen.reduce((sum, box) => sum + Number(box.dataset.of ?? 1), 0);
    const text = on === 0 ? "" : things === 1 ? count.dataset.one : count.dataset.many.replace("{n}", things);
    if (count.textContent !== text) count.textContent = text;
    const whole = one("[data-all]");
    if (whole) {
      whole.checked = on > 0 && on === boxes().length;
      whole.indeterminate = on > 0 && !whole.checked;
    }
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("[data-all], input[name=id]")) tell();
  });
  // The form empties its boxes after the event.
  marked.addEventListener("reset", () => setTimeout(tell));
  document.addEventListener("htmx:after:swap", tell);
  tell();
}

// ---- launch form ---------------------------------------------------------------------------------
function sliders() {
  for (const range of all("input[type=range][data-for]")) {
    const paint = () => range.style.setProperty("--fill", `${((range.value - range.min) / (range.max - range.min || 1)) * 100}%`);
    paint();
    if (range.dataset.ready) continue;
    range.dataset.ready = "1";
    const box = document.getElementById(range.dataset.for);
    range.addEventListener("input", () => { box.value = String(Number(range.value)); paint(); chips(); share(); });
    box.addEventListener("input", () => { if (!Number.isNaN(Number(box.value))) range.value = box.value.trim() || range.min; paint(); chips(); share(); });
  }
  share();
}
// What a share of a card is, while the user types; the scheduler's own answer stands beside it.
function share() {
  for (const note of all("[data-share-of]")) {
    const hundredths = Math.round(Number(document.getElementById(note.dataset.shareOf)?.value.trim()) * 100);
    const { gib, sms, none, is } = note.dataset;
    const values = { memory: Math.floor(gib * hundredths / 10) / 10, sms: Math.floor(sms * hundredths / 100), total: sms * Math.ceil(hundredths / 100) };
    note.textContent = hundredths > 0 && gib ? is.replace(/\{(\w+)\}/g, (_, name) => values[name]) : none;
  }
  const typed = Math.round(Number(document.getElementById("gpu")?.value.trim()) * 100) || 0;
  for (const chip of all("[data-share]")) chip.setAttribute("aria-pressed", Number(chip.dataset.share) * 100 === Math.max(typed, 0));
  // A session has a share or a partition, not both: the last choice counts.
  if (typed > 0) { const none = one('[name=mig][value=""]'); if (none) none.checked = true; }
}
one("#new-gpu")?.addEventListener("input", share);
// Which size the form has: its fields all hold what it would put there, as text or as a number. Of presets only the one
// that was picked: others may have the same amounts.
function chips() {
  const form = one("[data-launch]");
  if (!form) return;
  const same = (typed, put) => typed === put || (typed !== "" && put !== "" && Number(typed) === Number(put));
  const holds = (size) => Object.entries(JSON.parse(size.dataset.fill)).every(([name, put]) => same(form.elements.namedItem(name)?.value.trim() ?? "", put));
  const picked = form.elements.namedItem("picked");
  const chosen = (size) => (!picked || picked.value === size.value) && holds(size);
  for (const chip of all(".chip[data-fill]", form)) {
    const on = chosen(chip);
    chip.setAttribute("aria-pressed", on);
    chip.classList.toggle("on", on);
  }
  const list = one("#size", form);
  if (list) list.value = [...list.options].find((option) => option.dataset.fill && chosen(option))?.value ?? "";
}
const launch = one("[data-launch]");
if (launch) {
  const fill = (id, value) => {
    const box = document.getElementById(id);
    if (!box || box.value === value) return;
    box.value = value;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  };
  // All fields of a size; a group of choices takes its value as a field does.
  const take = (size) => {
    const picked = launch.elements.namedItem("picked");
    if (picked) picked.value = size.value;
    for (const [name, value] of Object.entries(JSON.parse(size.dataset.fill ?? "{}"))) {
      const field = launch.elements.namedItem(name);
      if (!(field instanceof RadioNodeList)) fill(name, value);
      // A partition that is not offered is none: what was chosen before is not meant.
      else for (const one of field) one.checked = one.value === value;
    }
    chips();
    launch.dispatchEvent(new Event("change"));
  };
  launch.addEventListener("click", (event) => {
    const chip = event.target.closest("button.chip");
    if (!chip) return;
    event.preventDefault();
    const { share } = chip.dataset;
    if (share === undefined) take(chip);
    else fill("gpu", share === "0" ? "" : share);
  });
  launch.addEventListener("change", (event) => {
    if (event.target.name === "mig" && event.target.value) fill("gpu", "");
    if (event.target.id === "size") take(event.target.selectedOptions[0]);
  });
  // A list that is being picked from says what it has at its change.
  launch.addEventListener("input", (event) => { if (event.target.id !== "size") chips(); });
  addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      const go = one("#preview [value=launch]");
      if (go) go.click();
    }
  });
}

// ---- palette and sheet of keys -------------------------------------------------------------------
const palette = one("#palette");
if (palette) {
  const field = one("input", palette);
  const list = one("[role=listbox]", palette);
  const none = one("[role=status]", palette);
  let asked = 0;
  let answered = 0;
  let sent = false;
  // The focus stays in the field; the chosen option is said by its id.
  const choose = (step) => {
    const rows = all("[role=option]", list);
    const now = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
    const next = rows[(now + step + rows.length) % rows.length];
    rows.forEach((row) => row.setAttribute("aria-selected", row === next));
    if (next) field.setAttribute("aria-activedescendant", next.id); else field.removeAttribute("aria-activedescendant");
    next?.scrollIntoView({ block: "nearest" });
  };
  // Enter before the answer is there waits for it: the option that stands there now was not asked for.
  const act = () => {
    sent = asked !== answered;
    if (!sent) one("[aria-selected=true]", list)?.click();
  };
  const fill = async () => {
    const mine = ++asked;
    const answer = await fetch(`/palette?q=${encodeURIComponent(field.value)}`, { headers: { "HX-Request": "true" } });
    if (mine !== asked || !answer.ok) return;
    // Our own server's fragment, parsed without running anything.
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    if (mine !== asked) return;
    list.hidden = !one("[role=option]", found);
    field.setAttribute("aria-expanded", !list.hidden);
    none.textContent = list.hidden ? found.textContent : "";
    list.replaceChildren(...(list.hidden ? [] : found.childNodes));
    list.scrollTop = 0;
    choose(1);
    answered = mine;
    if (sent) act();
  };
  const open = () => { sent = false; palette.showModal(); field.value = ""; field.focus(); fill(); };
  field.addEventListener("input", fill);
  palette.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(event.key === "ArrowDown" ? 1 : -1); }
    if (event.key === "Enter") { event.preventDefault(); act(); }
  });
  // An option may lead to a dialog of this very page.
  palette.addEventListener("click", (event) => { if (event.target === palette || event.target.closest("a")) palette.close(); });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette]")) { event.preventDefault(); open(); }
  });
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.target.closest?.(".xterm")) {
      event.preventDefault();
      open();
    }
  });
}

// ---- single keys ---------------------------------------------------------------------------------
const places = { o: "/", s: "/sessions", q: "/queue", u: "/gpus", i: "/images", d: "/docs", y: "/system/checks" };
let going = 0;
const rows = () => all("main :is(.rows, .tbl) tbody tr, main .list > li").filter((row) => one("a", row));
const step = (by) => {
  const list = rows();
  const at = list.findIndex((row) => row.contains(document.activeElement));
  const row = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (row) one("a", row).focus();
};
addEventListener("keydown", (event) => {
  if (words.keys !== "on" || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (typing(event.target) || one("dialog[open], [popover]:popover-open")) return;
  const key = event.key;
  // Only where the menu leads as well: the page of the system is for administrators.
  if (Date.now() - going < 1200 && places[key] && one(`.nav a[href="${places[key]}"]`)) { event.preventDefault(); location.href = places[key]; return; }
  going = key === "g" ? Date.now() : 0;
  const acts = {
    c: () => { location.href = "/sessions/new"; },
    "/": () => one("main [role=search] input")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    x: () => document.activeElement.closest("tr")?.querySelector("input[name=id]")?.click(),
    ".": () => one(".act button, .act a", document.activeElement.closest("tr, .list > li") ?? one("main"))?.focus(),
    "[": () => { const slim = one(".frame")?.classList.toggle("slim"); try { localStorage.setItem("slim", slim ? "1" : ""); } catch { /* private window */ } },
    "?": () => one("#sheet")?.showModal(),
  };
  if (acts[key]) { event.preventDefault(); acts[key](); }
});
one("#sheet")?.addEventListener("click", (event) => event.target.closest("button, dialog") && event.currentTarget.close());
try { if (localStorage.getItem("slim")) one(".frame")?.classList.add("slim"); } catch { /* private window */ }

// A form that was refused opens again, with the focus at what was wrong.
for (const form of all("[popover][data-open]")) {
  form.showPopover();
  (one("[aria-invalid=true], [autofocus]", form) ?? form).focus();
}

// The zone is the browser's until the user picks one.
if (!/(^|; )(__Host-)?fardel_zone=/.test(document.cookie)) {
  keep("fardel_zone", Intl.DateTimeFormat().resolvedOptions().timeZone);
}

// A page that was made before its zone was known says UTC: from here on it goes by the browser's clock.
for (const time of all("time[data-utc]")) {
  const { lang } = document.documentElement;
  const own = new Intl.DateTimeFormat(lang === "en" ? "en-GB" : lang, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  time.textContent = own.format(new Date(time.dateTime)).replace(",", "");
  time.removeAttribute("data-utc");
}

function keep(name, value) {
  const [own, secure] = location.protocol === "https:" ? ["__Host-", "; secure"] : ["", ""];
  document.cookie = `${own}${name}=${value}; path=/; max-age=31536000; samesite=lax${secure}`;
}

// An announcement goes when its time is over, and for this reader when they close it; the server leaves it out then.
for (const banner of all("[data-announced]")) {
  one("button", banner).addEventListener("click", () => {
    const kept = document.cookie.match(/(?:^|; )(?:__Host-)?fardel_closed=([^;]*)/)?.[1] ?? "";
    // As many as hold at once for one reader: those of the site and of a domain.
    keep("fardel_closed", [...kept.split(".").filter(Boolean).slice(-99), banner.dataset.announced].join("."));
    banner.remove();
    one("#main").focus({ preventScroll: true });
  });
  const left = Number(banner.dataset.left ?? Infinity);
  // Longer than a timer can wait, the next page knows.
  if (left < 86400) setTimeout(() => banner.remove(), left * 1000 + 500);
}

modules();

// An address that names a dialog opens it: /sessions/ID#stop.
const named = () => {
  const part = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!part || part.matches(":popover-open, dialog[open]")) return;
  if (part.matches(".mid[popover]")) part.showPopover();
  if (part.matches("dialog.mid")) part.showModal();
};
addEventListener("hashchange", named);
named();

// ---- installation --------------------------------------------------------------------------------
// Two minutes: what certificates and one-time codes bear.
for (const warning of document.querySelectorAll("[data-now]")) warning.hidden = Math.abs(Date.now() - warning.dataset.now) < 120000;
document.addEventListener("click", (event) => { if (event.target.closest("[data-print]")) print(); });
