// A class comes in by a file: the plan names what is wrong at its row, the mended file is applied, a new user signs in
// with their slip and has to set a password of their own, and an import that nobody began is undone.
//
// Promise (Isolation and access): A roster of 80 rows is planned with each fault named, applied in ten seconds, and undone without a trace.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, violations } from "./lib/browser.mjs";
import { openWith, setUp, signIn, until } from "./lib/house.mjs";

let browser;
let house;

const HEAD = "아이디,이름,이메일,프로젝트,역할,만료일";
const row = (n) => `student${n},학생 ${n},student${n}@school.example,ml-2027,,2999-02-28`;
const good = [HEAD, "prof,김교수,prof@school.example,ml-2027,책임자,", ...Array.from({ length: 79 }, (_, n) => row(n + 1))];
const bad = good.with(3, "Student 2,학생 2,,ml-2027,,").with(10, row(1)).with(80, row(79).replace("2999-02-28", "someday"));

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

async function send(page, text, name = "class.csv") {
  await page.setInputFiles("#roster", { name, mimeType: "text/csv", buffer: Buffer.from(text) });
  await page.click("form[action='/users/import'] .pri");
}

/// Text in CP949, by the browser's own encoder turned round: each pair of bytes is looked up once.
function korean(text) {
  const decoder = new TextDecoder("euc-kr");
  const table = new Map();
  for (let lead = 0x81; lead <= 0xfe; lead += 1) {
    for (let trail = 0x41; trail <= 0xfe; trail += 1) {
      const letter = decoder.decode(Uint8Array.of(lead, trail));
      if (letter.length === 1 && letter !== "\ufffd") table.set(letter, [lead, trail]);
    }
  }
  return Buffer.from([...text].flatMap((letter) => (letter < "\x80" ? [letter.charCodeAt(0)] : table.get(letter))));
}

test("a class of eighty: three faults are named, the mended file is applied and its users begin", { timeout: 240_000 }, async () => {
  const context = await browser.newContext({ colorScheme: "light" });
  const page = await context.newPage();
  await signIn(page, house);
  house.command("project", "create", "ml-2027");
  const complaints = listen(page);
  await page.goto(`${house.origin}/users`);
  await page.click("a[href='/users/import']");
  assert.deepEqual(await violations(page), []);
  // No file: said at the field.
  await page.click("form[action='/users/import'] .pri");
  await page.locator("#roster[aria-invalid=true]").waitFor();
  assert.deepEqual(await violations(page), []);

  await send(page, bad.join("\r\n"));
  await page.locator("h2", { hasText: "What it would do" }).waitFor();
  const faulty = page.locator("tr", { has: page.locator(".pill.bad") });
  assert.deepEqual(await faulty.locator("td:first-child").allInnerTexts(), ["4", "11", "81"]);
  assert.match(await faulty.nth(0).innerText(), /name: /);
  assert.match(await faulty.nth(1).innerText(), /earlier row/);
  assert.match(await faulty.nth(2).innerText(), /expires_at: This is no date/);
  assert.equal(await page.locator("form[action='/users/import/apply']").count(), 0);
  assert.deepEqual(await violations(page), []);

  await send(page, korean(good.join("\r\n")));
  await page.locator("form[action='/users/import/apply'] .pri").waitFor();
  assert.match(await page.locator("table.rows").innerText(), /학생 79/);
  const began = performance.now();
  await page.click("form[action='/users/import/apply'] .pri");
  await page.locator(".slips li").first().waitFor();
  const took = performance.now() - began;
  console.log(`80 accounts: ${Math.round(took)} ms`);
  assert.equal(await page.locator(".slips li").count(), 80);
  assert.deepEqual(await violations(page), []);
  // A reload shows what was applied, and applies nothing again.
  assert.match(page.url(), /\/users\/import\/[0-9a-f-]{36}$/);
  const roster = page.url().split("/").pop();
  // On paper: the slips alone, each in one piece.
  await page.emulateMedia({ media: "print" });
  for (const part of [".frame > .nav", "header.top", ".dock", ".head", ".card > header", ".screen"]) {
    for (const one of await page.locator(part).all()) assert.equal(await one.isVisible(), false, `${part} is printed`);
  }
  const pieces = await page.locator(".slips li").evaluateAll((all) => all.map((one) => getComputedStyle(one).breakInside));
  assert.deepEqual([...new Set(pieces)], ["avoid"]);
  await page.emulateMedia({ media: "screen" });
  await page.reload();
  assert.match(await page.locator("h2").first().innerText(), /^Applied: 80 new accounts/);
  assert.equal(await page.locator(".slips li").count(), 80);
  assert.equal(await page.locator("[role=alert].banner.e, #alert").count(), 0);
  const slip = page.locator(".slips li", { hasText: "student7\n" });
  const [name, password] = [await slip.locator("dd").nth(1).innerText(), await slip.locator("dd").nth(2).innerText()];

  // The slip's user signs in by address, and can do nothing before their own password.
  const own = await browser.newContext();
  const student = await own.newPage();
  await student.goto(`${house.origin}/login`);
  await student.fill("#name", `${name}@school.example`);
  await student.fill("#password", password);
  await student.click("form[action='/login'] .pri");
  await student.waitForURL(/\/me/);
  await student.goto(`${house.origin}/sessions`);
  assert.equal(student.url(), `${house.origin}/me`);
  assert.match(await student.locator("main").innerText(), /Set your own/);
  // Nothing but the password until it is set.
  assert.deepEqual(await student.locator("main form").evaluateAll((forms) => forms.map((form) => form.getAttribute("action"))), ["/me/password"]);
  assert.deepEqual(await violations(student), []);
  await student.fill("#old", password);
  await student.fill("#new", "a-password-of-my-own-7");
  await student.fill("#again", "a-password-of-my-own-7");
  await student.click("form[action='/me/password'] button");
  await until(() => `free: ${student.url()}`, async () => {
    await student.goto(`${house.origin}/sessions`);
    return student.url().endsWith("/sessions");
  });
  await student.goto(`${house.origin}/me`);
  assert.equal(await student.locator("main form[action='/me/tokens']").count(), 1);
  await own.close();

  // Somebody began, so it cannot be undone, and the page says who.
  await page.goto(`${house.origin}/users/import`);
  await page.click("a[href$='/undo']");
  await page.locator("dialog.question[open] form .dan").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question form .dan");
  await page.locator("h1").first().waitFor();
  assert.match(await page.locator("body").innerText(), /student7/);

  // What is left: its users are suspended as one, and admitted again as one.
  await page.goto(`${house.origin}/users/import`);
  await page.click("a[href$='/suspend']");
  await page.locator("dialog.question[open] .pri").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("dialog.question .pri");
  await page.locator("[role=status]", { hasText: "80 accounts are suspended" }).first().waitFor();
  await page.goto(`${house.origin}/users/student7`);
  assert.match(await page.locator("h1").innerText(), /Suspended/);
  // What is done already is not offered again: who is suspended is activated, who is active is suspended, and of both, both.
  const offered = async () => {
    await page.goto(`${house.origin}/users/import`);
    const of = (verb) => page.locator(`[href$='/${verb}'],[action$='/import/${roster}/${verb}']`).count();
    return [await of("suspend"), await of("restore")];
  };
  assert.deepEqual(await offered(), [0, 1]);
  assert.deepEqual(await violations(page), []);
  await page.click("form[action$='/restore'] button");
  await page.locator("[role=status]", { hasText: "80 accounts are active again" }).first().waitFor();
  assert.deepEqual(await offered(), [1, 0]);
  house.command("user", "suspend", "student7");
  assert.deepEqual(await offered(), [1, 1]);
  await page.locator(".pill", { hasText: "1 suspended" }).waitFor();
  assert.match(house.command("roster", "suspend", roster), /79 users {2}suspended/);
  assert.match(house.command("roster", "suspend", roster, "--undo"), /80 users {2}active/);
  await page.goto(`${house.origin}/users/student7`);
  assert.doesNotMatch(await page.locator("h1").innerText(), /Suspended/);
  assert.deepEqual(complaints.filter((one) => !/409|422/.test(one)), []);
  await context.close();
});

test("an import that nobody began is undone, also without script", async () => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await signIn(page, house);
  const users = () => house.command("user", "ls", "-o", "name").split("\n").filter(Boolean);
  const before = users();
  await page.goto(`${house.origin}/users/import`);
  await send(page, "name;full_name\nguest1;Guest One\nguest2;Guest Two\n");
  await page.click("form[action='/users/import/apply'] .pri");
  assert.equal(await page.locator(".slips li").count(), 2);
  assert.equal(users().length, before.length + 2);
  await page.goto(`${house.origin}/users/import`);
  await page.locator("a[href$='/undo']").first().click();
  await page.click("form[action$='/undo'] .dan");
  assert.match(await page.locator("body").innerText(), /2 accounts are gone/);
  await page.locator("a[href*='/users/import/']").first().click();
  assert.match(await page.locator("main").innerText(), /Undone/);
  assert.equal(await page.locator(".slips li").count(), 0);
  assert.deepEqual(users(), before);
  await context.close();
});
