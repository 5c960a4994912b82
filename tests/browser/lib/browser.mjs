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
  await bringAxe(page);
  return told(await atTop(page, () => part.evaluate(
    // The other kinds of result, node by node, are half of the time and are not read.
    (element, tags) => globalThis.axe.run(element, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] }),
    TAGS,
  )));
}

/// The same about several parts at once: `parts` is a list of elements of the page. axe reads the whole document for each
/// question, so that one question about a hundred parts costs little more than one about one.
export async function violationsOf(page, parts) {
  await bringAxe(page);
  return told(await atTop(page, () => parts.evaluate(
    (elements, tags) => globalThis.axe.run({ include: elements }, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] }),
    TAGS,
  )));
}

/// Asks while the page stands at its top, and moves it back: what happens to lie half under the bar would be told as too
/// small to be hit.
async function atTop(page, ask) {
  const move = (to) => page.evaluate((to) => {
    const before = scrollY;
    scrollTo({ top: to, behavior: "instant" });
    return before;
  }, to);
  const before = await move(0);
  const answer = await ask();
  await move(before);
  return answer;
}

/// Through the debugger, not as an element: the page's own policy refuses foreign scripts. Once per document.
async function bringAxe(page) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
}

function told(found) {
  return found.violations.flatMap((violation) =>
    violation.nodes.map((node) => `${violation.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\s+/g, " ")}`),
  );
}

const LANGUAGES = ["en-US", "ko-KR"];
const THEMES = ["light", "dark"];
const WIDTHS = [1440, 390];

/// Whether this run looks at everything in every pair of language and theme, as the night does.
export const ALL = process.env.FARDEL_PAIRS !== "half";
/// What chooses among the pairs where this run does not look at all of them: the gate takes it from the commit.
export const TURN = Number(process.env.FARDEL_TURN ?? 0);

/// In which languages, themes and widths a run looks at a thing; axe is asked at `widths`, which may be none. Not at night
/// a thing is opened in both languages and both themes, and axe is asked once, in one language, theme and width: asking
/// costs more than opening. Which these are depends on the thing's own name and on the turn alone, and over eight turns
/// axe is asked in each language, theme and width.
export function looks(name, turn = TURN, all = ALL) {
  let hash = 7;
  for (const letter of name) hash = (Math.imul(hash, 31) + letter.codePointAt(0)) >>> 0;
  // The bits of such a sum follow the last letters; these three steps mix them.
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  const bits = hash ^ (hash >>> 16) ^ turn;
  return LANGUAGES.flatMap((locale, other) =>
    all
      ? THEMES.map((colorScheme) => ({ locale, colorScheme, widths: WIDTHS }))
      : [{ locale, colorScheme: THEMES[(bits & 1) ^ other], widths: ((bits >> 2) & 1) === other ? [WIDTHS[(bits >> 1) & 1]] : [] }],
  );
}

/// Waits until an element has the focus, for 5 s at most: the browser gives it with the next frame, not with the page.
export async function focusGiven(page) {
  const end = Date.now() + 5_000;
  // Asked again and again from here: a page without script runs no waiting of its own.
  while (Date.now() < end && (await page.evaluate(() => document.activeElement === document.body))) await page.waitForTimeout(20);
}

/// Drops a file or a directory of the disk onto the page, as a hand does: the page reads it as an entry of a file system.
export async function drop(page, path) {
  const { x, y, width, height } = await page.locator("h1").boundingBox();
  const at = { x: x + width / 2, y: y + height / 2 };
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files: [path], dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) await session.send("Input.dispatchDragEvent", { type, ...at, data });
}

/// Answers how many pixels the page can be moved sideways; a page that fits gives 0.
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}
