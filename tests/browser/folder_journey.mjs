// One folder from its beginning on, with the pages alone: it is made, a directory is dragged in, a colleague reads it in a
// session beside a folder of their own, it is thrown away and comes back, and its owner meets the limit and gets out of it.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { drop, launch, listen, overflow, violations } from "./lib/browser.mjs";
import { addUser, fillUp, openWith, setUp, signedInAs, until } from "./lib/house.mjs";

const COLLEAGUE = { name: "lee", password: "another long walk 8" };

let browser;
let house;
let owner;
let colleague;
const files = mkdtempSync(join(tmpdir(), "fardel-journey-"));

before(async () => {
  mkdirSync(join(files, "run/deep"), { recursive: true });
  writeFileSync(join(files, "run/a.txt"), "of the owner\n");
  writeFileSync(join(files, "run/deep/b.txt"), "b");
  writeFileSync(join(files, "note.txt"), "goes on\n");
  browser = await launch();
  house = await openWith({});
  owner = await (await browser.newContext({ locale: "en-US" })).newPage();
  await setUp(owner, house);
  house.command("policy", "set", "default", "--folder-bytes", "64MiB");
  await addUser(owner, house, COLLEAGUE);
  colleague = await signedInAs(browser, house, COLLEAGUE);
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(files, { recursive: true, force: true });
});

/// Makes a folder on the page of folders and gives its id.
async function make(page, name) {
  await page.goto(`${house.origin}/folders`);
  await page.fill("#name", name);
  await page.click("form[action='/folders'] button.pri");
  await page.locator("a.nm", { hasText: name }).click();
  await page.locator("h1", { hasText: name }).waitFor();
  return new URL(page.url()).pathname.split("/")[2];
}

/// What sessions see of a folder.
const mounted = (id) => join(house.environment.FARDEL_DATA, "folders", id.slice(-2), id, "data");

async function isGood(page) {
  assert.deepEqual(await violations(page), [], page.url());
  assert.equal(await overflow(page), 0, page.url());
}

test("a folder is filled, shared, read in a session, thrown away, brought back, full, and used again", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const complaints = [listen(owner), listen(colleague)];
  const id = await make(owner, "corpus");
  const place = `${house.origin}/folders/${id}/files`;
  await drop(owner, join(files, "run"));
  await owner.locator("[role=status]", { hasText: "Files uploaded: 2" }).first().waitFor({ timeout: 40_000 });
  await owner.locator("td a.nm", { hasText: "run" }).waitFor();
  await isGood(owner);

  await owner.goto(`${house.origin}/folders/${id}/sharing`);
  await owner.fill("#user", COLLEAGUE.name);
  await owner.selectOption("#right", "ro");
  await owner.click("form[action$='/share'] button");
  await owner.locator("td", { hasText: "not accepted yet" }).waitFor();
  const own = await make(colleague, "results");
  await colleague.goto(`${house.origin}/folders`);
  await colleague.locator("form[action$='/accept'] button").click();
  await colleague.locator("a.nm", { hasText: "mina/corpus" }).waitFor();
  await isGood(colleague);

  // Both are in one session: the one to be read, the other to be written to.
  const made = await colleague.evaluate(async () => {
    const script = "cat /in/run/a.txt > /out/copy; touch /in/new; echo tried; sleep 600";
    const mounts = [{ folder: "mina/corpus", at: "/in" }, { folder: "results", at: "/out" }];
    const answer = await fetch("/api/v1/sessions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ name: "reads", kind: "batch", command: ["sh", "-c", script], mounts }),
    });
    const body = await answer.json();
    const session = body.sessions?.[0] ?? body;
    return { status: answer.status, id: session.id, access: session.mounts?.map((mount) => [mount.at, mount.access]) };
  });
  assert.equal(made.status, 201);
  assert.deepEqual(Object.fromEntries(made.access), { "/in": "ro", "/out": "rw" });
  const output = () => colleague.evaluate(async (session) => (await fetch(`/api/v1/sessions/${session}/logs`)).text(), made.id);
  await until(() => "the output of the session", async () => /tried/.test(await output()));
  assert.match(await output(), /Read-only file system/);
  assert.equal(readFileSync(join(mounted(own), "copy"), "utf8"), "of the owner\n");
  assert.equal(existsSync(join(mounted(id), "new")), false);

  // While a session has it, it is not thrown away, and its owner is told which.
  const throwAway = async () => {
    await owner.goto(`${house.origin}/folders`);
    await owner.locator("tr", { hasText: "corpus" }).locator("a[href$='/trash']").click();
    await owner.locator("dialog.question[open]").waitFor();
    await owner.click("dialog form button");
  };
  await throwAway();
  await owner.locator("body", { hasText: "mounted by sessions that are not over: reads" }).waitFor();
  house.command("session", "kill", "reads");
  const state = () => JSON.parse(house.command("session", "get", "reads", "-o", "json")).state;
  await until(() => `the session ends: ${state()}`, async () => state() === "ended");
  await throwAway();
  await owner.locator("form[action$='/restore'] button").waitFor();
  await isGood(owner);
  assert.notEqual((await colleague.goto(place)).status(), 200);
  await owner.click("form[action$='/restore'] button");
  await owner.locator("a.nm", { hasText: "corpus" }).waitFor();
  assert.equal(readFileSync(join(mounted(id), "run/deep/b.txt"), "utf8"), "b");
  assert.equal((await colleague.goto(place)).status(), 200);

  // A file goes and comes back, too.
  await owner.goto(`${place}?path=run`);
  await owner.locator("tr", { hasText: "a.txt" }).locator("a[href*='/remove']").click();
  await owner.locator("dialog.question[open]").waitFor();
  await owner.click("dialog form button:not([name=force])");
  await owner.locator("[role=status]", { hasText: "is in the trash" }).first().waitFor();
  assert.equal(existsSync(join(mounted(id), "run/a.txt")), false);
  await owner.goto(`${house.origin}/folders/${id}/removed`);
  await owner.locator("tr", { hasText: "a.txt" }).locator("button").click();
  await owner.locator("[role=status]", { hasText: "back in its place" }).first().waitFor();
  assert.equal(readFileSync(join(mounted(id), "run/a.txt"), "utf8"), "of the owner\n");

  const told = await owner.evaluate(async () => (await fetch("/api/v1/storage")).json());
  if (told.items[0].enforcement === "counted") {
    t.diagnostic("this machine holds no limit of folders: nothing is filled");
  } else {
    fillUp(join(mounted(id), "of-a-session"));
    const send = async () => {
      await owner.goto(place);
      await owner.setInputFiles("#files", join(files, "note.txt"));
      await owner.click("#upload button");
    };
    await send();
    await owner.locator("#upload .fault", { hasText: "note.txt" }).waitFor();
    await isGood(owner);
    await owner.goto(place);
    await owner.locator("tr", { hasText: "of-a-session" }).locator("a[href*='/remove']").click();
    await owner.locator("dialog.question[open]").waitFor();
    await owner.click("dialog form button[name=force]");
    await owner.locator("[role=status]", { hasText: "was deleted" }).first().waitFor();
    const left = () => statfsSync(mounted(id)).bavail * statfsSync(mounted(id)).bsize;
    await until(() => `there is room again: ${left()}`, async () => left() > 16 << 20);
    await send();
    await owner.locator("td a.nm", { hasText: "note.txt" }).waitFor({ timeout: 20_000 });
    assert.equal(readFileSync(join(mounted(id), "note.txt"), "utf8"), "goes on\n");
  }
  for (const heard of complaints) {
    assert.deepEqual(heard.filter((line) => !/40[349]|422/.test(`${line}`)), []);
  }
});
