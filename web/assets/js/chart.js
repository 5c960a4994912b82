// Reads a chart's values out under the pointer and by keyboard. The values are those of the table beside the
// charts: without script the table says the same.

const known = new WeakSet();

/// Takes charge of every chart in `part`, also of those that the stream of changes puts there later.
export function attach(part) {
  if (known.has(part)) return;
  known.add(part);
  const read = new WeakMap();
  const rows = () => part.querySelectorAll("table tbody tr");
  const plots = () => part.querySelectorAll(".plot");
  const said = (plot) => plot.closest("figure").querySelector(".read");
  const words = (plot, row) => {
    const values = plot.dataset.columns.split(" ").map((column) => {
      // "CPU, busy": the chart's own name stands above it.
      const name = part.querySelectorAll("table thead th")[column]?.textContent.split(", ").at(-1);
      return `${name} ${row.cells[column]?.textContent ?? ""}`;
    });
    return `${row.cells[0].textContent} · ${values.join(" · ")}`;
  };
  const tell = (plot, place) => {
    const all = rows();
    if (!all.length) return;
    const at = Math.max(0, Math.min(all.length - 1, place));
    read.set(plot, at);
    const text = words(plot, all[at]);
    plot.setAttribute("aria-valuenow", at);
    plot.setAttribute("aria-valuetext", text);
    if (said(plot).textContent !== text) said(plot).textContent = text;
    let cross = plot.querySelector(".cross");
    if (!cross) {
      cross = document.createElement("i");
      cross.className = "cross";
      plot.append(cross);
    }
    cross.style.left = `${(at / Math.max(all.length - 1, 1)) * 100}%`;
  };
  const quiet = (plot) => {
    read.delete(plot);
    plot.querySelector(".cross")?.remove();
    said(plot).textContent = "";
  };
  // After the stream drew a chart again, it is what it was before, and tells the same place.
  const ready = () => {
    for (const plot of plots()) {
      plot.setAttribute("role", "slider");
      plot.setAttribute("aria-valuemin", "0");
      plot.setAttribute("aria-valuemax", Math.max(rows().length - 1, 0));
      if (!plot.hasAttribute("aria-valuenow")) plot.setAttribute("aria-valuenow", "0");
      if (read.has(plot)) tell(plot, read.get(plot));
    }
  };
  const others = (plot) => { for (const other of plots()) if (other !== plot && other !== document.activeElement && read.has(other)) quiet(other); };
  const plotOf = (event) => event.target.closest?.(".plot");
  part.addEventListener("pointermove", (event) => {
    const plot = plotOf(event);
    others(plot);
    if (!plot) return;
    const box = plot.getBoundingClientRect();
    tell(plot, Math.round(((event.clientX - box.left) / box.width) * (rows().length - 1)));
  });
  part.addEventListener("pointerleave", () => others());
  part.addEventListener("focusin", (event) => {
    const plot = plotOf(event);
    if (plot && !read.has(plot)) tell(plot, rows().length - 1);
  });
  part.addEventListener("focusout", (event) => { const plot = plotOf(event); if (plot) quiet(plot); });
  part.addEventListener("keydown", (event) => {
    const plot = plotOf(event);
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = rows().length - 1;
    const at = read.get(plot) ?? last;
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10, Home: 0, End: last };
    if (!(event.key in steps)) return;
    event.preventDefault();
    tell(plot, steps[event.key]);
  });
  document.addEventListener("htmx:after:swap", ready);
  ready();
}
