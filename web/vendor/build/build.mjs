// Rebuilds web/vendor from the packages in package-lock.json. Run by hand or by the vendor check of
// packaging/tasks; `cargo build` never runs it. Output depends on the lock file alone.
import { build } from "esbuild";
import { mkdir, readFile, writeFile, copyFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const from = (...parts) => path.join(here, "node_modules", ...parts);
const out = (...parts) => path.join(here, "..", ...parts);

await mkdir(out("htmx"), { recursive: true });
await mkdir(out("licences"), { recursive: true });

// One request for the three parts every page needs.
const parts = ["htmx.min.js", "ext/hx-sse.min.js", "ext/hx-upsert.min.js"];
let core = "";
for (const part of parts) {
  const text = await readFile(from("htmx.org", "dist", part), "utf8");
  core += text.replace(/\/\/# sourceMappingURL=.*$/m, "").trim().replace(/;?$/, ";\n");
}
await writeFile(out("htmx", "htmx.js"), core);

await build({
  stdin: {
    resolveDir: here,
    contents: `
      export { Terminal } from "@xterm/xterm";
      export { FitAddon } from "@xterm/addon-fit";
      export { SearchAddon } from "@xterm/addon-search";
      export { Unicode11Addon } from "@xterm/addon-unicode11";
      export { WebLinksAddon } from "@xterm/addon-web-links";
      export { WebglAddon } from "@xterm/addon-webgl";`,
  },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  outfile: out("xterm.js"),
});
await build({
  entryPoints: [from("@xterm/xterm/css/xterm.css")],
  minify: true,
  legalComments: "none",
  outfile: out("xterm.css"),
});

// Icons: the names in web/assets/icons.txt, bodies as Lucide draws them, one <symbol> each.
const names = (await readFile(path.join(here, "../../assets/icons.txt"), "utf8"))
  .split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
await mkdir(out("icons"), { recursive: true });
for (const name of names) {
  const svg = await readFile(from("lucide-static", "icons", `${name}.svg`), "utf8");
  const body = svg.replace(/<!--[\s\S]*?-->/g, "").replace(/^[\s\S]*?<svg[^>]*>/, "").replace(/<\/svg>[\s\S]*$/, "");
  await writeFile(out("icons", `${name}.svg`), body.replace(/\s*\n\s*/g, "").trim() + "\n");
}

await copyFile(from("htmx.org", "LICENSE"), out("licences", "htmx.txt"));
await copyFile(from("@xterm/xterm/LICENSE"), out("licences", "xterm.txt"));
await copyFile(from("lucide-static/LICENSE"), out("licences", "lucide.txt"));
