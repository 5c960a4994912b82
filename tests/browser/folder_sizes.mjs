// Pages of a folder that holds nothing, one file, and a thousand: the first of them and the next, in order and out of it, found
// and counted, in light and dark, on a desk and on a phone, in both languages. `FARDEL_ENTRIES=1000000` asks for a folder of so
// many alone; the nightly does.
//
// Proves too: `tests/browser/pages.mjs`

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { launch, listen, looks, overflow, violations } from "./lib/browser.mjs";
import { addFolder, openWith, setUp } from "./lib/house.mjs";

/// Entries of the page of a directory.
const PAGE = 60;
const COUNTS = process.env.FARDEL_ENTRIES ? [Number(process.env.FARDEL_ENTRIES)] : [0, 1, 1000];
/// Entries up to which a directory is put into another order than that of names.
const SORTED = 50_000;
/// A directory of a million names is read in seconds.
const TIMEOUT = 60_000;
const PAGES = ["files", "files?q=0", "files?sort=-size", "search?q=0", "usage", "removed", "snapshots", "owner", "edit?new=1"];
/// Those of a file, where there is one.
const OF_FILE = ["entry?path=n0000001", "remove?path=n0000001"];

let browser;
let house;
let state;
let folder;
let mounted;
let held = 0;

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  const made = await addFolder(page, house, "data");
  folder = made.place.split("/files")[0];
  mounted = made.mounted;
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  // Faster than node by minutes, where there are many.
  if (mounted) execFileSync("rm", ["-rf", mounted]);
  await house?.close();
});

/// Makes files until there are so many, with names in order.
function fill(count) {
  const made = `seq -f n%07.0f ${held + 1} ${count} | xargs -r touch`;
  if (count > held) execFileSync("sh", ["-c", made], { cwd: mounted });
  held = count;
}

/// Looks at one page and gives what is wrong.
async function look(path, { locale, colorScheme, widths }) {
  const context = await browser.newContext({ storageState: state, locale, colorScheme, viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  page.setDefaultNavigationTimeout(TIMEOUT);
  const complaints = listen(page);
  const answer = await page.goto(`${folder}/${path}`);
  const seen = `${path} of ${held} ${locale} ${colorScheme}`;
  const told = answer.status() === 200 ? [] : [`${seen}: ${answer.status()}`];
  for (const width of widths) {
    await page.setViewportSize({ width, height: 900 });
    const wide = await overflow(page);
    if (wide > 0) told.push(`${seen} ${width}: ${wide} pixels too wide`);
    for (const violation of await violations(page)) told.push(`${seen} ${width}: ${violation}`);
  }
  await context.close();
  return [...told, ...complaints.map((line) => `${seen}: ${line}`)];
}

/// What the first page of the folder shows, and the one behind it.
async function browse() {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  page.setDefaultNavigationTimeout(TIMEOUT);
  const names = () => page.locator("td a.nm").allInnerTexts();
  const name = (number) => `n${String(number).padStart(7, "0")}`;
  await page.goto(`${folder}/files`);
  assert.equal((await page.locator(".pager > span").innerText()).replace(/\D/g, ""), `${held}`);
  const first = await names();
  assert.deepEqual(first, Array.from({ length: Math.min(held, PAGE) }, (_, number) => name(number + 1)));
  assert.equal(await page.locator("section[aria-labelledby=ff1] p.none").count(), held === 0 ? 1 : 0);
  assert.equal(await page.locator("a[rel=next]").count(), held > PAGE ? 1 : 0);
  if (held > PAGE) {
    await page.click("a[rel=next]");
    await page.locator("td a.nm", { hasText: name(PAGE + 1) }).waitFor();
    assert.equal((await names()).length, Math.min(held - PAGE, PAGE));
  }
  // The last of all is found by its name.
  if (held > 0) {
    await page.goto(`${folder}/files?q=${name(held)}`);
    assert.deepEqual(await names(), [name(held)]);
  }
  await page.goto(`${folder}/files?sort=-size`);
  const isSorted = await page.locator("th[aria-sort=descending]").count();
  assert.equal(isSorted, held > 0 && held <= SORTED ? 1 : 0);
  await context.close();
}

for (const count of COUNTS) {
  test(`a folder of ${count} files`, { timeout: 1_800_000 }, async () => {
    fill(count);
    await browse();
    const told = [];
    for (const path of count > 0 ? [...PAGES, ...OF_FILE] : PAGES) {
      // Where one run does not look at all, what axe is not asked about is left to other files.
      const ways = looks(`${path} ${count}`).filter(({ widths }) => widths.length > 0);
      for (const one of ways) told.push(...(await look(path, one)));
    }
    assert.deepEqual(told, []);
  });
}
