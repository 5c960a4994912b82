// Opens what a link or form with `data-dialog` leads to above the page, instead of as a page. The answer is the
// server's own fragment; without this file the same thing is a page.

let dialog;

async function open(address) {
  let answer;
  try {
    answer = await fetch(address, { headers: { "HX-Request": "true" } });
  } catch {
    return; // The line above says that the server is not reached.
  }
  if (!answer.ok || answer.redirected) {
    location.href = address;
    return;
  }
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  dialog.replaceChildren(...parsed.body.childNodes);
  if (!dialog.open) dialog.showModal();
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
    open(link.href);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-dialog]")) return;
    event.preventDefault();
    open(`${form.action}?${new URLSearchParams(new FormData(form, event.submitter))}`);
  });
}
