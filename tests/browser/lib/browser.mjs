// One headless Chromium per test file, and the questions that every page must answer. Never touches
// the product: it only looks.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// WCAG 2.0 to 2.2, levels A and AA, and the practices that axe recommends beyond them.
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/// Starts the browser. Without a sandbox of its own: the suite runs as root in containers and gates.
export function launch({ webgl = true } = {}) {
  const name = process.env.CHROMIUM ?? "chromium";
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"];
  if (!webgl) args.push("--disable-3d-apis");
  return chromium.launch({ executablePath: name.includes("/") ? name : `/usr/bin/${name}`, args });
}

/// Collects what the browser complains about: refused by the policy, failed, thrown.
export function listen(page) {
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(`thrown: ${error.message}`));
  return complaints;
}

/// Asks axe about the page as it stands, or about one part of it; answers one line per violation, empty when there is none.
/// A part of a page costs a fraction of the page.
export async function violations(page, part = page.locator("html")) {
  // Through the debugger, not as an element: the page's own policy refuses foreign scripts. Once per document.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const found = await part.evaluate(
    // The other kinds of result, node by node, are half of the time and are not read.
    (element, tags) => globalThis.axe.run(element, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] }),
    TAGS,
  );
  return found.violations.flatMap((violation) =>
    violation.nodes.map((node) => `${violation.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\s+/g, " ")}`),
  );
}

/// The theme in which half of the runs look at a thing in a language: by the thing's own name alone, and the other one in
/// the other language.
export function half(name, language) {
  let hash = 7;
  for (const letter of name) hash = (Math.imul(hash, 31) + letter.codePointAt(0)) >>> 0;
  // The lowest bit of such a sum follows the last letter; the upper ones are mixed.
  const dark = ((hash ^ (hash >>> 15)) >>> 7) & 1;
  return ["light", "dark"][dark ^ (language === "ko" ? 1 : 0)];
}

/// Answers how many pixels the page can be moved sideways; a page that fits gives 0.
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}
