// What tables do with script beyond links and forms: dialogs, forms that lead back to the filter as it stands now, and a
// stream that follows the filter.

import { attach as dialogs } from "./dialog.js";

export function attach(part) {
  dialogs();
  // The filter changes the address while the page stays: a reload, a bookmark and the back button know it.
  document.addEventListener("htmx:after:swap", (event) => {
    const place = event.detail?.ctx?.response?.headers?.get("hx-replace-url");
    if (place) history.replaceState(null, "", place);
  });
  part.addEventListener("submit", (event) => {
    for (const back of event.target.querySelectorAll("[data-here]")) back.value = location.pathname + location.search;
  });
}
