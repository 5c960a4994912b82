// Snapshots with the page: on a Btrfs that the test mounts one is made, looked into, and gives a file and a folder back, in
// both languages and without script; elsewhere the button says why there is none.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, setUp, until } from "./lib/house.mjs";

const PACKED = fileURLToPath(new URL("../fixtures/reflink.btrfs.gz.gz", import.meta.url));

let browser;
let house;
let state;
let ground;
let mounted = "";

/// Mounts an empty Btrfs; false where this machine cannot.
function mount() {
  ground = mkdtempSync(join(tmpdir(), "fardel-snapshots-"));
  const [image, place] = [join(ground, "image"), join(ground, "shared")];
  mkdirSync(place);
  const unpack = `gzip -dc ${PACKED} | gzip -dc | cp --sparse=always /dev/stdin "$0"`;
  execFileSync("sh", ["-c", unpack, image]);
  try {
    execFileSync("mount", ["-o", "loop", image, place], { stdio: "pipe" });
  } catch {
    return false;
  }
  mounted = place;
  chmodSync(place, 0o700);
  return true;
}

/// Calls the API as the page does; fails where the answer is not this one.
async function call(page, method, path, body, status) {
  const answer = await page.evaluate(async ([method, path, body]) => {
    const headers = { "content-type": "application/json", "if-match": "*" };
    const answer = await fetch(path, { method, headers, body: JSON.stringify(body) });
    return [answer.status, await answer.text()];
  }, [method, path, body]);
  assert.equal(answer[0], status, answer[1]);
  return answer[1] === "" ? null : JSON.parse(answer[1]);
}

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  if (mounted !== "") {
    execFileSync("umount", ["-l", mounted]);
  }
  if (ground !== undefined) {
    rmSync(ground, { recursive: true, force: true });
  }
});

test("a folder whose disk shares no blocks says why it has no snapshot", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/folders`);
  const { id } = await call(page, "POST", "/api/v1/folders", { name: "plain" }, 201);
  await page.goto(`${house.origin}/folders/${id}/files`);
  await page.locator("a[href$='/snapshots']").click();
  await page.locator("h1", { hasText: "Snapshots of plain" }).waitFor();
  const { offered } = await call(page, "GET", `/api/v1/folders/${id}/snapshots`, undefined, 200);
  const button = page.locator("section[aria-labelledby=fz1] button.pri");
  assert.equal(await button.isDisabled(), !offered);
  const said = await page.locator("#make-help").innerText();
  assert.match(said, offered ? /each file is whole/ : /cannot share blocks/);
  assert.deepEqual(await violations(page), []);
  await page.setViewportSize({ width: 360, height: 740 });
  assert.equal(await overflow(page), 0);
  await context.close();
});

for (const [locale, script] of [["en-US", true], ["ko-KR", false]]) {
  test(`a snapshot is made, looked into and taken back, ${locale}, ${script ? "with" : "without"} script`, async (t) => {
    if (mounted === "" && !mount()) {
      t.diagnostic("no Btrfs can be mounted here");
      return;
    }
    const api = await (await browser.newContext({ storageState: state })).newPage();
    await api.goto(`${house.origin}/folders`);
    const volumes = await call(api, "GET", "/api/v1/volumes", undefined, 200);
    if (volumes.items.length === 0) {
      await call(api, "POST", "/api/v1/volumes", { name: "big", path: mounted }, 201);
    }
    const name = script ? "data" : "daten";
    const { id } = await call(api, "POST", "/api/v1/folders", { name, volume: "big" }, 201);
    const text = `/api/v1/folders/${id}/text`;
    await call(api, "POST", text, { path: "notes.txt", text: "first" }, 201);

    const context = await browser.newContext({ storageState: state, locale, javaScriptEnabled: script });
    const page = await context.newPage();
    const complaints = script ? listen(page) : [];
    const all = `${house.origin}/folders/${id}/snapshots`;
    await page.goto(all);
    await Promise.all([page.waitForEvent("framenavigated"), page.click("section[aria-labelledby=fz1] button.pri")]);
    const made = async () => {
      await page.goto(all);
      return (await page.locator("a.nm", { hasText: "#1" }).count()) === 1;
    };
    await until(() => "the snapshot is made", made);
    await call(api, "PUT", text, { path: "notes.txt", text: "second" }, 200);

    // What stands in the place of a file is asked for first.
    await page.locator("a.nm", { hasText: "#1" }).click();
    const back = page.locator("section[aria-labelledby=fy2] form[action$='/restore'] button");
    await Promise.all([page.waitForEvent("framenavigated"), back.click()]);
    const replace = page.locator("section[aria-labelledby=fy1] button");
    await replace.waitFor();
    if (script) {
      assert.deepEqual(await violations(page), []);
    }
    const read = async () => (await call(api, "GET", `${text}?path=notes.txt`, undefined, 200)).text;
    assert.equal(await read(), "second");
    await Promise.all([page.waitForEvent("framenavigated"), replace.click()]);
    assert.equal(await read(), "first");

    // All of it as a new folder.
    await page.fill("#name", `${name}-earlier`);
    await Promise.all([page.waitForEvent("framenavigated"), page.click("section[aria-labelledby=fy3] button")]);
    const whole = async () => {
      await page.goto(`${house.origin}/folders`);
      return (await page.locator("a.nm", { hasText: `${name}-earlier` }).count()) === 1;
    };
    await until(() => "the new folder is whole", whole);

    // A schedule keeps what is typed where it is refused.
    await page.goto(all);
    await page.fill("#hourly", "49");
    const save = page.locator("section[aria-labelledby=fz3] button");
    await Promise.all([page.waitForEvent("framenavigated"), save.click()]);
    await page.locator("#hourly[aria-invalid=true]").waitFor();
    assert.equal(await page.inputValue("#hourly"), "49");
    await page.fill("#hourly", "24");
    await Promise.all([page.waitForEvent("framenavigated"), save.click()]);
    assert.equal(await page.inputValue("#hourly"), "24");
    if (script) {
      assert.deepEqual(await violations(page), []);
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await overflow(page), 0);
      assert.deepEqual(complaints.filter((line) => !/40[349]|422/.test(`${line}`)), []);
    }
    await context.close();
    await api.context().close();
  });
}
