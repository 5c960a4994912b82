// A folder of a project is made, read by a member, copied by them, and given away to a colleague who takes it.

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
  const made = await owner.evaluate(async (members) => {
    const call = async (method, path, body) => {
      const answer = await fetch(path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      return answer.status;
    };
    const all = [await call("POST", "/api/v1/projects", { name: "vision" })];
    for (const [user, role] of members) {
      all.push(await call("PUT", `/api/v1/projects/vision/members/${user}`, { role }));
    }
    return all;
  }, [["mina", "lead"], [COLLEAGUE.name, "member"]]);
  assert.deepEqual(made, [201, 200, 200]);
  colleague = await signedInAs(browser, house, COLLEAGUE);
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a project's folder is copied by a member, and the copy goes to its lead", async () => {
  const complaints = [listen(owner), listen(colleague)];
  await owner.goto(`${house.origin}/folders`);
  await owner.fill("#name", "corpus");
  await owner.selectOption("#project", "vision");
  await owner.click("form[action='/folders'] button.pri");
  await owner.locator("a.nm", { hasText: "vision/corpus" }).waitFor();
  assert.deepEqual(await violations(owner), []);
  assert.equal(await overflow(owner), 0);

  // The member reads it, and makes an own copy.
  await colleague.goto(`${house.origin}/folders`);
  await colleague.locator("a.nm", { hasText: "vision/corpus" }).click();
  await colleague.locator("h1", { hasText: "corpus" }).waitFor();
  await colleague.locator("a[href$='/owner']").click();
  await colleague.locator("h1", { hasText: "Copy or give away corpus" }).waitFor();
  assert.deepEqual(await violations(colleague), []);
  assert.equal(await colleague.locator("form[action$='/transfer']").count(), 0);
  await colleague.fill("#name", "a/b");
  await colleague.click("form[action$='/clone'] button");
  await colleague.locator("#name[aria-invalid=true]").waitFor();
  await colleague.fill("#name", "mine");
  await colleague.click("form[action$='/clone'] button");
  const copied = async () => {
    await colleague.goto(`${house.origin}/folders`);
    return (await colleague.locator("a.nm", { hasText: /^mine$/ }).count()) === 1;
  };
  await until(() => "the copy is whole", copied);
  assert.deepEqual(await violations(colleague), []);

  // Its lead keeps copies to the leads: the member still reads it.
  await owner.goto(`${house.origin}/folders`);
  await owner.locator("tr", { hasText: "vision/corpus" }).locator("a[href$='/owner']").click();
  await owner.selectOption("#cloneable", "owner");
  await owner.locator("form", { has: owner.locator("#cloneable") }).locator("button").click();
  // As the server says it, not as it was chosen.
  await owner.locator("#cloneable option[value=owner][selected]").waitFor({ state: "attached" });
  assert.deepEqual(await violations(owner), []);
  await colleague.locator("tr", { hasText: "vision/corpus" }).locator("a[href$='/owner']").click();
  await colleague.locator("h1", { hasText: "Copy or give away corpus" }).waitFor();
  assert.equal(await colleague.locator("form[action$='/clone']").count(), 0);
  await colleague.locator("p.none", { hasText: "Its owner keeps copies to themselves." }).waitFor();
  await colleague.goto(`${house.origin}/folders`);

  // One owner's folders alone.
  await colleague.selectOption("select[name=owner]", "vision");
  await colleague.click("form.filter button");
  assert.equal(await colleague.locator("a.nm", { hasText: /^mine$/ }).count(), 0);
  await colleague.locator("a.nm", { hasText: "vision/corpus" }).waitFor();

  // The copy is given away, and taken.
  await colleague.goto(`${house.origin}/folders`);
  await colleague.locator("tr", { hasText: "mine" }).locator("a[href$='/owner']").click();
  await colleague.fill("#user", "no.such.user");
  await colleague.click("form[action$='/transfer'] button");
  await colleague.locator("#user[aria-invalid=true]").waitFor();
  await colleague.fill("#user", "mina");
  await colleague.click("form[action$='/transfer'] button");
  await colleague.locator("form[action$='/withdraw'] button").waitFor();
  await owner.goto(`${house.origin}/folders`);
  await owner.locator("form[action^='/folder-transfers/'][action$='/accept'] button").click();
  const taken = async () => {
    await owner.goto(`${house.origin}/folders`);
    return (await owner.locator("a.nm", { hasText: /^mine$/ }).count()) === 1;
  };
  await until(() => "the folder is its new owner's", taken);
  await colleague.goto(`${house.origin}/folders`);
  assert.equal(await colleague.locator(".nm", { hasText: /^mine$/ }).count(), 0);
  for (const heard of complaints) {
    assert.deepEqual(heard.filter((line) => !/40[349]|422/.test(`${line}`)), []);
  }
});

test("a folder is given a limit of its own, and loses it", async () => {
  const complaints = listen(owner);
  await owner.goto(`${house.origin}/folders`);
  await owner.fill("#name", "bounded");
  await owner.click("form[action='/folders'] button.pri");
  await owner.locator("a.nm", { hasText: /^bounded$/ }).waitFor();
  const place = await owner.locator("tr", { hasText: "bounded" }).locator("a[href$='/owner']").getAttribute("href");
  await owner.goto(house.origin + place);
  assert.deepEqual(await violations(owner), []);
  for (const wrong of ["much", "1k"]) {
    await owner.fill("#limit", wrong);
    await owner.click("form[action$='/limit'] button");
    await owner.locator("#limit[aria-invalid=true]").waitFor();
    assert.equal(await owner.inputValue("#limit"), wrong);
  }
  // Where limits are held its files move first; without scripts the form does the same.
  for (const [typed, shown] of [["1g", "1 GiB"], ["", ""]]) {
    await owner.fill("#limit", typed);
    await owner.click("form[action$='/limit'] button");
    const isSet = async () => {
      await owner.goto(house.origin + place);
      return (await owner.locator("#limit").count()) === 1 && (await owner.inputValue("#limit")) === shown;
    };
    await until(() => `the limit is ${shown}`, isSet);
  }
  assert.deepEqual(complaints.filter((line) => !/422|409/.test(`${line}`)), []);
});
