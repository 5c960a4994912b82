// Sends an archive in pieces and goes on where it stopped, after a lost connection or a reload. The form
// works without it; then the browser sends everything at once.

const PIECE = 8 * 1024 * 1024;
export const TUS = { "Tus-Resumable": "1.0.0" };
export const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
export const human = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
};

export class Refused extends Error {}

// A fault at its field, as the server writes it.
function mark(control, text) {
  let note = document.getElementById(`fault-${control.name}`);
  if (!note) {
    note = document.createElement("span");
    note.className = "fault";
    note.id = `fault-${control.name}`;
    note.setAttribute("role", "alert");
    control.after(note);
  }
  note.textContent = text;
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-describedby", note.id);
  control.focus();
}

/** Takes over the form with `data-uploads`, where pieces go; the form then names the whole. */
export function attach(form) {
  const said = form.dataset;
  const box = form.querySelector(".progress");
  const bar = box.querySelector("i");
  const words = box.querySelector("p");
  const button = form.querySelector("button");
  const show = (text, done = null) => {
    box.hidden = false;
    words.textContent = text;
    if (done !== null) bar.className = `a w-${Math.floor(done * 100)}`;
  };
  const ask = async (address, options) => {
    const answer = await fetch(address, options);
    if (answer.ok) return answer;
    // 4xx is an answer, not an accident; 409 and 460 of a piece mean "look where you are", of anything else they refuse.
    const problem = await answer.json().catch(() => ({}));
    const words = [problem.detail, problem.hint].filter(Boolean).join(" ") || problem.title || `HTTP ${answer.status}`;
    const again = options.method === "PATCH" ? [408, 409, 423, 429, 460] : [408, 423, 429];
    if (answer.status >= 400 && answer.status < 500 && !again.includes(answer.status)) throw new Refused(words);
    throw new Error(words);
  };

  const begin = async (file) => {
    const key = `upload:${file.name}:${file.size}:${file.lastModified}`;
    const known = localStorage.getItem(key);
    if (known) {
      const seen = await fetch(known, { method: "HEAD", headers: TUS });
      if (seen.ok) {
        show(said.saidResume);
        return { key, address: known, offset: Number(seen.headers.get("Upload-Offset")) };
      }
      localStorage.removeItem(key);
    }
    const made = await ask(said.uploads, {
      method: "POST",
      headers: { ...TUS, "Upload-Length": String(file.size), "Upload-Metadata": `filename ${base64(file.name)}` },
    });
    const address = new URL(made.headers.get("Location"), location.href).pathname;
    localStorage.setItem(key, address);
    return { key, address, offset: 0 };
  };

  const send = async (file) => {
    const upload = await begin(file);
    let failures = 0;
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
        if (fault instanceof Refused) { localStorage.removeItem(upload.key); throw fault; }
        failures += 1;
        show(said.saidPaused);
        await wait(Math.min(15000, 500 * 2 ** failures) * (0.7 + Math.random() * 0.6));
        const seen = await fetch(upload.address, { method: "HEAD", headers: TUS }).catch(() => null);
        if (seen?.ok) upload.offset = Number(seen.headers.get("Upload-Offset"));
        continue;
      }
      show(said.saidUploading.replace("{done}", human(upload.offset)).replace("{all}", human(file.size)), upload.offset / file.size);
    }
    localStorage.removeItem(upload.key);
    return upload.address.split("/").pop();
  };

  form.addEventListener("submit", async (event) => {
    const file = form.elements.archive.files[0];
    if (!file) return;
    event.preventDefault();
    button.disabled = true;
    show(said.saidUploading.replace("{done}", "0 B").replace("{all}", human(file.size)), 0);
    const leaving = (e) => e.preventDefault();
    addEventListener("beforeunload", leaving);
    try {
      const upload = await send(file);
      show(said.saidSent, 1);
      removeEventListener("beforeunload", leaving);
      // The form itself brings the rest, so that a refusal stands at its field, in the reader's language.
      form.elements.upload.value = upload;
      form.elements.archive.value = "";
      form.submit();
    } catch (fault) {
      removeEventListener("beforeunload", leaving);
      show("");
      box.hidden = true;
      mark(form.elements.archive, `${said.saidFailed} ${fault.message}`);
      button.disabled = false;
    }
  });
}
