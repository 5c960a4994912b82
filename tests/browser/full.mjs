// A user whose folders take all of their limit, with the pages alone: signs in, starts a session, is told what is wrong by
// name, deletes and works on. No administrator helps.

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { fillUp, openWith, setUp, signIn, until } from "./lib/house.mjs";

let browser;
let house;
let place;
let mounted;
let enforcement;
const files = mkdtempSync(join(tmpdir(), "fardel-full-"));
const part = join(files, "part.bin");
const note = join(files, "note.txt");

before(async () => {
  writeFileSync(part, Buffer.alloc(20 << 20, "0123456789abcdef"));
  writeFileSync(note, "goes on\n");
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await setUp(page, house);
  house.command("policy", "set", "default", "--folder-bytes", "64MiB");
  await page.goto(`${house.origin}/folders`);
  await page.fill("#name", "data");
  await page.click("form[action='/folders'] button");
  await page.locator("a.nm", { hasText: "data" }).click();
  await page.locator("h1", { hasText: "data" }).waitFor();
  place = page.url().split("?")[0];
  const id = new URL(place).pathname.split("/")[2];
  mounted = join(house.environment.FARDEL_DATA, "folders", id.slice(-2), id, "data");
  const told = await context.request.get(`${house.origin}/api/v1/storage`);
  enforcement = (await told.json()).items[0].enforcement;
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(files, { recursive: true, force: true });
});

/// Bytes that are left of the limit, as the kernel says.
const left = () => {
  const { bavail, bsize } = statfsSync(mounted);
  return bavail * bsize;
};

async function send(page, name) {
  await page.goto(place);
  await page.setInputFiles("#files", name);
  await page.click("#upload button");
}

test("a user at the limit signs in, starts a session, deletes in the page and works on", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  if (enforcement === "counted") {
    t.skip("this machine holds no limit of folders");
    return;
  }
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await signIn(page, house);
  await send(page, part);
  await page.locator("td a.nm", { hasText: "part.bin" }).waitFor({ timeout: 20_000 });
  fillUp(join(mounted, "of-a-session"));
  // A block may be left that no longer fits what a file needs beside it.
  assert.ok(left() <= 4096, `${left()} bytes are left`);
  await context.close();

  // A new browser: nothing that was opened before helps.
  const next = await browser.newContext({ locale: "en-US" });
  const full = await next.newPage();
  const complaints = listen(full);
  await signIn(full, house);
  await send(full, note);
  const fault = full.locator("#upload .fault", { hasText: "note.txt" });
  await fault.waitFor();
  assert.match(await fault.innerText(), /Your folders take .* Delete files for good/);
  assert.deepEqual(await violations(full), []);
  assert.equal(await overflow(full), 0);

  await full.goto(place);
  await full.click(".head a:has-text('Launch session')");
  await full.fill("#cpu", "0.5");
  await full.fill("#name", "at-the-limit");
  await full.locator("#cli-line", { hasText: "at-the-limit" }).waitFor();
  await Promise.all([
    full.waitForURL((address) => !address.pathname.endsWith("/new")),
    full.click("button[name=act][value=launch]"),
  ]);
  const session = () => JSON.parse(house.command("session", "get", "at-the-limit", "-o", "json"));
  await until(
    () => `it runs: ${JSON.stringify(session())}`,
    async () => session().state === "running",
  );

  await full.goto(place);
  await full.locator("tr", { hasText: "of-a-session" }).locator("a[href*='/remove']").click();
  await full.locator("dialog.question[open]").waitFor();
  await full.click("dialog form button[name=force]");
  await full.locator("[role=status]", { hasText: "was deleted" }).first().waitFor();
  assert.equal(readdirSync(mounted).includes("of-a-session"), false);
  await until(
    () => `there is room again: ${left()}`,
    async () => left() > 16 << 20,
  );
  await send(full, note);
  await full.locator("td a.nm", { hasText: "note.txt" }).waitFor({ timeout: 20_000 });
  assert.equal(readFileSync(join(mounted, "note.txt"), "utf8"), "goes on\n");
  const at = session().mounts[0].at;
  house.command("exec", "at-the-limit", "--", "sh", "-c", `cat ${at}/note.txt > ${at}/of-work`);
  assert.equal(readFileSync(join(mounted, "of-work"), "utf8"), "goes on\n");
  assert.deepEqual(complaints.filter((line) => !/409|422|404/.test(line)), []);
  await next.close();
});
