// The launch form keeps what is typed: a draft in this tab, which comes back after a lost sign-in and after a
// reload, and a link that opens the form filled. Marks fields that are wrong while they are typed, as the
// preview's answer says. The form is complete without it.

const KEY = "fardel:launch";
// Older drafts are of no use to anybody.
const KEPT_MS = 12 * 3600 * 1000;

const store = {
  get: () => { try { return JSON.parse(sessionStorage.getItem(KEY) ?? "null"); } catch { return null; } },
  set: (draft) => { try { sessionStorage.setItem(KEY, JSON.stringify(draft)); } catch { /* private window */ } },
  drop: () => { try { sessionStorage.removeItem(KEY); } catch { /* private window */ } },
};
const values = (form) => Object.fromEntries([...new FormData(form)].filter(([, value]) => typeof value === "string"));

/// Puts text into the clipboard; true when it is there.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Plain HTTP has no clipboard.
    const box = document.createElement("textarea");
    box.value = text;
    box.className = "sr";
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}

function mark(form, faults) {
  for (const field of form.elements) {
    if (!field.name || field.type === "hidden") continue;
    const text = faults.get(field.name);
    const id = `fault-${field.name}`;
    const old = document.getElementById(id);
    const others = (field.getAttribute("aria-describedby") ?? "").split(" ").filter((word) => word && word !== id);
    if (text === undefined) {
      if (field.hasAttribute("aria-invalid") || old) {
        old?.remove();
        field.removeAttribute("aria-invalid");
        if (others.length > 0) field.setAttribute("aria-describedby", others.join(" "));
        else field.removeAttribute("aria-describedby");
      }
      continue;
    }
    if (field.type === "radio") continue;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", [id, ...others].join(" "));
    if (old) {
      if (old.textContent !== text) old.textContent = text;
      continue;
    }
    const note = document.createElement("span");
    note.className = "fault";
    note.id = id;
    note.dataset.fault = field.name;
    note.textContent = text;
    (field.closest(".v") ?? field).after(note);
  }
}

/// The address that opens the form filled as it is, without the name: two sessions cannot share one.
function addressOf(form) {
  const url = new URL("/sessions/new", location.href);
  for (const [name, value] of Object.entries(values(form))) {
    const plain = value === "" || (name === "replicas" && value === "1");
    if (!plain && !["name", "act", "size"].includes(name)) url.searchParams.set(name, value);
  }
  return url;
}

// Templates stay in this browser: a name, and the address that opens the form filled.
const TEMPLATES = "fardel:templates";
const MOST_TEMPLATES = 50;

function templates(form) {
  const list = document.querySelector("#templates ul");
  const save = document.querySelector("#templates form");
  if (!list || !save) return;
  const all = () => { try { return JSON.parse(localStorage.getItem(TEMPLATES) ?? "[]"); } catch { return []; } };
  const put = (these) => { try { localStorage.setItem(TEMPLATES, JSON.stringify(these.slice(0, MOST_TEMPLATES))); } catch { /* private window */ } };
  const show = () => list.replaceChildren(...all().map(({ name, query }) => {
    const item = document.createElement("li");
    const open = document.createElement("a");
    open.className = "nm";
    open.href = `/sessions/new?${query}`;
    open.textContent = name;
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "btn s gh";
    remove.textContent = "×";
    remove.setAttribute("aria-label", list.dataset.remove.replace("{name}", name));
    remove.addEventListener("click", () => { put(all().filter((one) => one.name !== name)); show(); });
    item.append(open, remove);
    return item;
  }));
  save.addEventListener("submit", (event) => {
    event.preventDefault();
    const box = save.querySelector("input");
    const name = box.value.trim();
    if (!name) return;
    put([{ name, query: addressOf(form).searchParams.toString() }, ...all().filter((one) => one.name !== name)]);
    box.value = "";
    show();
  });
  show();
}

export function attach(form) {
  const address = new URL(location.href);
  const came = performance.getEntriesByType("navigation")[0]?.type;
  const draft = store.get();
  const mine = draft && draft.user === form.dataset.user && Date.now() - draft.at < KEPT_MS;
  const again = address.searchParams.has("draft") || ((came === "reload" || came === "back_forward") && draft?.path === address.pathname + address.search);
  // A form that was refused comes back from the server as it was sent.
  const refused = form.querySelector("[aria-invalid=true]");
  if (mine && again && !refused) {
    for (const [name, value] of Object.entries(draft.values)) {
      const field = form.elements.namedItem(name);
      if (field instanceof RadioNodeList || field?.type === "radio" || field?.type === "checkbox") {
        for (const one of form.querySelectorAll(`[name="${CSS.escape(name)}"]`)) {
          one.checked = one.value === value;
          if (one.checked && one.closest("details")) one.closest("details").open = true;
        }
      } else if (field && (field.type !== "hidden" || name === "picked")) {
        field.value = value;
        if (value && field.closest("details")) field.closest("details").open = true;
      }
    }
    const note = document.createElement("div");
    note.className = "banner n";
    note.id = "draft";
    note.setAttribute("role", "status");
    const text = document.createElement("div");
    text.textContent = form.dataset.kept;
    const fresh = document.createElement("a");
    fresh.className = "btn s";
    fresh.href = "/sessions/new";
    fresh.textContent = form.dataset.empty;
    fresh.addEventListener("click", store.drop);
    note.append(text, fresh);
    form.prepend(note);
    if (address.searchParams.has("draft")) {
      address.searchParams.delete("draft");
      history.replaceState(null, "", address);
    }
    form.dispatchEvent(new Event("input", { bubbles: true }));
  } else if (draft) {
    store.drop();
  }
  const keep = () => store.set({ user: form.dataset.user, at: Date.now(), path: location.pathname + location.search, values: values(form) });
  form.addEventListener("input", keep);
  form.addEventListener("change", keep);
  form.addEventListener("submit", keep);

  // Only what was touched is marked: an empty form is not wrong yet.
  const touched = new Set(refused ? [refused.name] : []);
  // What the server refused at the launch, which the preview may not look at, stays until its field changes.
  const told = new Map();
  for (const field of form.querySelectorAll("[aria-invalid=true]")) {
    const note = document.getElementById(`fault-${field.name}`);
    if (note) told.set(field.name, { value: field.value, text: note.textContent });
  }
  form.addEventListener("input", (event) => { if (event.target.name) touched.add(event.target.name); });
  const show = () => {
    if (!form.isConnected) return;
    const faults = new Map();
    for (const line of document.querySelectorAll("#typed-faults [data-field]")) {
      if (touched.has(line.dataset.field)) faults.set(line.dataset.field, line.textContent);
    }
    for (const [name, { value, text }] of told) {
      if (!faults.has(name) && form.elements[name].value === value) faults.set(name, text);
    }
    mark(form, faults);
  };
  document.addEventListener("htmx:after:swap", show);

  // An inactive button sends nothing: every fault is marked, and the first one has the focus. Without this script the
  // server says the same.
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[form=launch][aria-disabled=true]")) return;
    event.preventDefault();
    for (const field of form.elements) if (field.name) touched.add(field.name);
    show();
    const first = form.querySelector("[aria-invalid=true]");
    if (first?.closest("details")) first.closest("details").open = true;
    first?.focus();
  });

  // A folder that is clicked is one more line of the mounts.
  form.addEventListener("click", (event) => {
    const mount = event.target.closest?.("[data-mount]")?.dataset.mount;
    if (!mount) return;
    const box = form.elements.mounts;
    const lines = box.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!lines.includes(mount)) lines.push(mount);
    box.value = lines.join("\n");
    box.dispatchEvent(new Event("input", { bubbles: true }));
  });

  // A group of choices is one stop of the keyboard, before the summary: what was unfolded comes next.
  for (const more of form.querySelectorAll("[role=radiogroup] + details")) {
    more.addEventListener("toggle", () => {
      if (more.open && document.activeElement === more.querySelector("summary")) more.querySelector("input").focus();
    });
  }

  templates(form);
  const link = document.querySelector("[data-link]");
  link?.addEventListener("click", async () => {
    if (!await copied(addressOf(form).href)) return;
    const words = link.querySelector("span");
    const before = words.textContent;
    words.textContent = link.dataset.copied;
    setTimeout(() => { words.textContent = before; }, 1600);
  });
}
