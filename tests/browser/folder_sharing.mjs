// A folder is shared with a colleague: offered, accepted, mounted read-only in a session, not written to, taken back,
// and taken out of the session.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { addUser, openWith, setUp, signedInAs, until } from "./lib/house.mjs";

const COLLEAGUE = { name: "lee", password: "another long walk 8" };

let browser;
let house;
let owner;
let colleague;

before(async () => {
  browser = await launch();
  house = await openWith({});
  owner = await (await browser.newContext({ locale: "en-US" })).newPage();
  await setUp(owner, house);
  await addUser(owner, house, COLLEAGUE);
  colleague = await signedInAs(browser, house, COLLEAGUE);
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a folder is shared to be read, accepted, mounted, and taken back", async () => {
  const complaints = [listen(owner), listen(colleague)];
  await owner.goto(`${house.origin}/folders`);
  await owner.fill("#name", "data");
  await owner.click("form[action='/folders'] button");
  await owner.locator("a.nm", { hasText: "data" }).waitFor();
  await owner.locator("a[href$='/sharing']").first().click();
  await owner.locator("h1", { hasText: "Sharing data" }).waitFor();
  const sharing = owner.url();
  const id = sharing.split("/").at(-2);
  assert.deepEqual(await violations(owner), []);
  // A user who does not exist is named at the field.
  await owner.fill("#user", "no.such.user");
  await owner.click("form[action$='/share'] button");
  await owner.locator("#user[aria-invalid=true]").waitFor();
  await owner.fill("#user", COLLEAGUE.name);
  await owner.selectOption("#right", "ro");
  await owner.click("form[action$='/share'] button");
  await owner.locator("td", { hasText: COLLEAGUE.name }).waitFor();
  await owner.locator("td", { hasText: "not accepted yet" }).waitFor();
  assert.match(await owner.innerText("main"), /was offered to lee/);

  // Who is asked is told: at the bell and at Folders in the menu.
  await colleague.goto(`${house.origin}/notices`);
  await colleague.locator("main", { hasText: "is offered to you by mina" }).waitFor();
  assert.equal(await colleague.locator(".nav a[href='/folders'] .n").innerText(), "1");

  // Before it is accepted, the folder is not there.
  const files = `${house.origin}/folders/${id}/files`;
  assert.equal((await colleague.goto(files)).status(), 404);
  await colleague.goto(`${house.origin}/folders`);
  assert.deepEqual(await violations(colleague), []);
  assert.equal(await overflow(colleague), 0);
  await colleague.locator("form[action$='/accept'] button").click();
  await colleague.locator("a.nm", { hasText: "mina/data" }).waitFor();
  assert.deepEqual(await violations(colleague), []);
  assert.equal((await colleague.goto(files)).status(), 200);
  assert.match(await colleague.innerText(".head"), /Folder of mina\. You may: read\./);
  assert.equal(await colleague.locator("main a[href$='/removed'], main a[href$='/sharing']").count(), 0);
  await owner.goto(files);
  assert.equal(await owner.locator(".head a[href$='/sharing']").count(), 1);

  // What is written is refused, by the page and in the session's mount.
  await colleague.goto(`${house.origin}/folders`);
  const refused = await colleague.evaluate(async (folder) => {
    const answer = await fetch(`/api/v1/folders/${folder}/mkdir`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ path: "new" }),
    });
    return [answer.status, (await answer.json()).code];
  }, id);
  assert.deepEqual(refused, [403, "folder.right-missing"]);
  await colleague.goto(`${house.origin}/sessions/new`);
  const mounted = await colleague.evaluate(async () => {
    const answer = await fetch("/api/v1/sessions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ name: "reads", command: ["sh", "-c", "touch /data/new; echo tried; while grep -q ' /data ' /proc/self/mounts; do sleep 0.2; done; echo without it; sleep 600"], kind: "batch", mounts: [{ folder: "mina/data", at: "/data" }] }),
    });
    const body = await answer.json();
    const session = body.sessions?.[0] ?? body;
    return [answer.status, session.mounts?.[0]?.access, session.id];
  });
  assert.deepEqual(mounted.slice(0, 2), [201, "ro"]);
  const output = () => colleague.evaluate(async (session) => (await fetch(`/api/v1/sessions/${session}/logs`)).text(), mounted[2]);
  await until(() => "the output of the session", async () => /tried/.test(await output()));
  assert.match(await output(), /Read-only file system/);

  // The owner sees the session, and takes the share back.
  await owner.goto(sharing);
  await owner.locator("td", { hasText: "reads" }).waitFor();
  await owner.locator("form[action$='/unshare'] button").click();
  await owner.locator("p.none", { hasText: "Shared with no user" }).waitFor();
  // It still runs with the folder, until the owner takes it out.
  assert.doesNotMatch(await output(), /without it/);
  await owner.locator("tr", { hasText: "reads" }).locator("form[action$='/detach'] button").click();
  await owner.locator("[role=status]", { hasText: "Session lee/reads loses the folder" }).first().waitFor();
  await owner.locator("p.none", { hasText: "No session mounts it now" }).waitFor();
  assert.deepEqual(await violations(owner), []);
  await until(() => "the session is without it", async () => /without it/.test(await output()));
  await until(
    () => "the folder is gone for the colleague",
    async () => (await colleague.goto(files)).status() === 404,
  );
  await colleague.goto(`${house.origin}/folders`);
  assert.equal(await colleague.locator("a.nm", { hasText: "mina/data" }).count(), 0);
  for (const heard of complaints) {
    assert.deepEqual(heard.filter((line) => !/40[349]|422/.test(`${line}`)), []);
  }
});
