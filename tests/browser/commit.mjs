// An image of a session, as its owner makes it in the console (J10): looks through what it would hold, reads which files look
// like secrets, leaves one out, makes it, and starts the next session from it. No one else sees it.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { system } from "./lib/archive.mjs";
import { launch, violations } from "./lib/browser.mjs";
import { addUser, open, setUp, signedInAs, until } from "./lib/house.mjs";

const root = process.getuid() === 0;
const OTHER = { name: "jae", password: "the heron stands in the reeds 8" };

// What a user leaves behind after a morning of work: a tool, a file with a password, and drafts that are worth nothing.
const WORKS = `
mkdir -p /opt/tool /tmp /home/me
echo yes > /opt/tool/kept
echo PASSWORD=1 > /opt/tool/.env
echo draft > /tmp/draft
echo private > /home/me/note
echo laid
exec sleep 1000000
`;

// What the next session finds of it.
const LOOKS = `
read -r line < /opt/tool/kept && echo "kept $line"
for gone in /opt/tool/.env /tmp/draft /home/me/note; do
    [ -e $gone ] && echo "still there: $gone"
done
echo over
`;

let browser;
let house;
let page;
let folder;

before(async () => {
  if (!root) return;
  folder = mkdtempSync(join(tmpdir(), "fardel-commit-"));
  browser = await launch();
  house = await open();
  page = await (await browser.newContext({ locale: "en-US" })).newPage();
  await setUp(page, house);
});

after(async () => {
  await browser?.close();
  await house?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/// Asks the API as the browser of the page does; gives the body of a good answer.
const asked = (method, path, body) =>
  page.evaluate(async ([method, path, body]) => {
    const headers = body ? { "content-type": "application/json" } : {};
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text.startsWith("{") ? JSON.parse(text) : text;
  }, [method, path, body]);

/// Launches a session of the signed-in user that runs a script.
const launched = (name, image, script) =>
  asked("POST", "/api/v1/sessions", {
    name, image, kind: "batch", command: ["/bin/sh", "-c", script],
    resources: { cpu: 0.1, memory: 64 << 20, shm: 1 << 20 },
  });

const log = (session) => asked("GET", `/api/v1/sessions/${session.id}/logs`);

test("an owner makes an image of a session without its secrets, and starts from it", async (t) => {
  if (!root) return t.skip("sessions need root");
  const archive = system(folder, "localhost/base:1", ["/bin/sh", "/bin/sleep", "/bin/mkdir"]);
  await page.goto(`${house.origin}/images`);
  await page.setInputFiles("#archive", archive);
  // The page leads on by itself after what it sent, and would break off what was asked meanwhile.
  const leads = page.waitForEvent("framenavigated");
  await page.click("#import button");
  await leads;
  await page.waitForLoadState("load");
  await until(() => "it is imported", async () => /base/.test(house.command("image", "ls", "-o", "json")));
  const first = await launched("morning", "base:1", WORKS);
  await until(() => "the session has worked", async () => /laid/.test(await log(first)));

  // From the page of the session to a look at what an image would hold.
  await page.goto(`${house.origin}/sessions/${first.id}`);
  const link = page.locator('a[href$="/commit"]').first();
  await link.waitFor({ state: "attached" });
  await page.goto(new URL(await link.getAttribute("href"), house.origin).href);
  await page.fill("#reference", "tools:1");
  await page.click("form[action$='/commit'] button:not([name])");
  const secret = page.locator('input[name=leave][value="/opt/tool/.env"]');
  await secret.waitFor();
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(await page.locator("input[name=leave]").evaluateAll((all) => all.map((one) => one.value)), ["/opt/tool/.env"]);
  const reference = (await page.locator("#co3").textContent()).trim();

  // A secret that is neither left out nor accepted is refused, by its name, and nothing is kept.
  await secret.setChecked(false);
  await page.click("button[name=make]");
  await page.locator("#job", { hasText: "/opt/tool/.env" }).waitFor({ timeout: 40_000 });
  assert.equal(await page.locator("#job a.btn.pri").count(), 0);

  await page.goto(`${house.origin}/sessions/${first.id}/commit`);
  await page.fill("#reference", "tools:1");
  await page.click("form[action$='/commit'] button:not([name])");
  await secret.waitFor();
  await secret.setChecked(true);
  await page.click("button[name=make]");
  const made = page.locator("#job a.btn.pri");
  await made.waitFor({ timeout: 40_000 });
  assert.deepEqual(await violations(page), []);
  await Promise.all([page.waitForURL(/\/images\/[0-9a-f-]+$/), made.click()]);
  assert.deepEqual(await violations(page), []);
  const shown = new URL(page.url()).pathname;

  // The session goes on, and the next one has what it laid, and nothing else of it.
  assert.equal((await asked("GET", `/api/v1/sessions/${first.id}`)).state, "running");
  const next = await launched("next-day", reference, LOOKS);
  await until(() => "the next session has looked", async () => /over/.test(await log(next)));
  const said = await log(next);
  assert.match(said, /kept yes/);
  assert.doesNotMatch(said, /still there/);

  // It is its owner's alone.
  await addUser(page, house, OTHER);
  const other = await signedInAs(browser, house, OTHER);
  await other.goto(`${house.origin}/images`);
  assert.equal(await other.locator("tr", { hasText: "tools" }).count(), 0);
  const answer = await other.goto(`${house.origin}${shown}`);
  assert.equal(answer.status(), 404);
});
