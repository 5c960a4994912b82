// Opens what a link or form with `data-dialog` leads to above the page, instead of as a page. The answer is the
// server's own fragment; without this file the same thing is a page.

let dialog;

// A menu opens at the button that asked for it, inside the window; a question opens in its middle.
function place(opener) {
  const at = dialog.querySelector(".verbs") && opener?.isConnected ? opener.getBoundingClientRect() : null;
  dialog.classList.toggle("at", Boolean(at));
  if (!at) {
    dialog.style.left = dialog.style.top = "";
    return;
  }
  const edge = 8;
  const { offsetWidth: width, offsetHeight: height } = dialog;
  const below = at.bottom + 4;
  const above = at.top - 4 - height;
  const low = innerHeight - edge - height;
  dialog.style.left = `${Math.max(edge, Math.min(at.right - width, innerWidth - edge - width))}px`;
  dialog.style.top = `${Math.max(edge, below <= low ? below : above >= edge ? above : low)}px`;
}

/** Opens the answer of an address, at `opener` where it is a menu; `body` is what a form sends that is too long for one. */
export async function open(address, opener, body) {
  let answer;
  try {
    answer = await fetch(address, { headers: { "HX-Request": "true" }, ...(body && { method: "POST", body }) });
  } catch {
    return; // The line above says that the server is not reached.
  }
  if (!answer.ok || answer.redirected) {
    // Of what is sent there is no address to look at; the page itself says what became of it.
    if (body) location.reload();
    else location.href = address;
    return;
  }
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  dialog.replaceChildren(...parsed.body.childNodes);
  if (!dialog.open) dialog.showModal();
  place(opener);
  dialog.querySelector("[autofocus]")?.focus();
}

export function attach() {
  if (dialog) return;
  dialog = document.createElement("dialog");
  dialog.className = "question";
  dialog.setAttribute("aria-labelledby", "dialog-title");
  document.body.append(dialog);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if (event.target === dialog || event.target.closest("dialog.question [data-close]")) {
      event.preventDefault();
      dialog.close();
      return;
    }
    const link = event.target.closest("a[data-dialog]");
    if (!link) return;
    event.preventDefault();
    open(link.href, dialog.contains(link) ? null : link);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    // A button with an address of its own leads there as it is.
    if (!form.matches("form[data-dialog]") || event.submitter?.hasAttribute("formaction")) return;
    event.preventDefault();
    const said = new URLSearchParams(new FormData(form, event.submitter));
    if (form.method === "post") open(form.action, null, said);
    else open(`${form.action}?${said}`);
  });
}
