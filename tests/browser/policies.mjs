// Limits are written into a policy in the page, attached to a project, and hold: the preview names the policy, a user's
// page says which rule each limit comes from.
//
// Promise (Queue and scheduler): What a policy bounds waits, and the preview names the policy.

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { openWith, PERSON, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({});
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a policy is written, attached, and its limits hold", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/policies`);
  await page.locator("td", { hasText: "The whole site" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", "Bad Name");
  await page.click("button:has-text('Create policy')");
  await page.locator("#name[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#name"), "Bad Name");
  await page.fill("#name", "class");
  await page.click("button:has-text('Create policy')");
  await page.locator("h1", { hasText: "class" }).waitFor();
  assert.deepEqual(await violations(page), []);
  // What cannot be read stands at its field, beside what else was typed.
  await page.fill("#cpu", "0.5");
  await page.fill("#runtime_seconds", "soon");
  await page.click("button:has-text('Save')");
  await page.locator("#runtime_seconds[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#cpu"), "0.5");
  // A number alone is no twelve seconds.
  await page.fill("#runtime_seconds", "12");
  await page.click("button:has-text('Save')");
  await page.locator(".field", { has: page.locator("#runtime_seconds") }).filter({ hasText: "12h for hours" }).waitFor();
  await page.fill("#runtime_seconds", "12h");
  await page.fill("#memory_each", "2 GiB");
  await page.click("button:has-text('Save')");
  await page.locator("[role=status]", { hasText: "class was changed" }).first().waitFor();
  assert.equal(await page.inputValue("#runtime_seconds"), "12h");
  // To attach saves what was typed, both or neither.
  await page.fill("#memory_each", "3 GiB");
  await page.selectOption("#level", "project");
  await page.fill("#subject", "nowhere");
  await page.click("button:has-text('Attach')");
  await page.locator("#subject[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#memory_each"), "3 GiB");
  const kept = () => JSON.parse(house.command("policy", "get", "class", "-o", "json")).limits.memory_each;
  assert.equal(kept(), 2 * 2 ** 30);
  await page.fill("#subject", "default");
  await page.click("button:has-text('Attach')");
  await page.locator("li", { hasText: "default/default" }).waitFor();
  assert.equal(kept(), 3 * 2 ** 30);
  // Who would be over is told, what was typed stays, and nothing is saved.
  await page.fill("#memory_each", "4 GiB");
  await page.check("#require_limit");
  await page.click("button:has-text('Who would be over?')");
  await page.locator("#over", { hasText: "No user and no project has more" }).waitFor();
  assert.equal(await page.inputValue("#memory_each"), "4 GiB");
  assert.equal(await page.isChecked("#require_limit"), true);
  assert.deepEqual(await violations(page), []);
  assert.equal(kept(), 3 * 2 ** 30);
  await page.goto(`${house.origin}/policies/class/preview`);
  assert.equal(page.url(), `${house.origin}/policies/class`);
  // Enter in the name saves the limits, and the name stays.
  await page.fill("#subject", "later");
  await page.press("#subject", "Enter");
  await page.locator("[role=status]", { hasText: "class was changed" }).first().waitFor();
  assert.equal(await page.inputValue("#subject"), "later");
  assert.equal(await overflow(page), 0);
  // For each member by themselves, and away again.
  await page.selectOption("#level", "member");
  await page.fill("#subject", "default");
  await page.click("button:has-text('Attach')");
  await page.locator("li", { hasText: "Each member of project default/default" }).waitFor();
  assert.equal(await overflow(page), 0);
  await page.click("li:has-text('Each member') a[href*='/detach']");
  await page.click("dialog button.dan, dialog form button");
  await page.locator("[role=status]", { hasText: "class was detached" }).first().waitFor();

  house.command("run", "--detach", "--name", "first", "--cpu", "0.4", "host", "sleep", "600");
  await page.goto(`${house.origin}/sessions/new`);
  assert.equal(await page.getAttribute("#max_runtime", "placeholder"), "12h");
  assert.match(await page.locator("#max_runtime-help").innerText(), /12 h, by policy class/);
  await page.fill("#cpu", "0.3");
  await page.locator("#preview, .answer, aside", { hasText: "policy class" }).first().waitFor();
  await page.goto(`${house.origin}/users/${PERSON.name}`);
  const limits = page.locator("section", { has: page.locator("#u4") });
  assert.match(await limits.innerText(), /0\.4 of 0\.5 · policy class/);
  assert.match(await limits.innerText(), /12 h/);
  assert.match(await limits.innerText(), /GPUs\s+no limit/);
  assert.match(await limits.innerText(), /of 50 GiB/);
  assert.deepEqual(await violations(page), []);

  // A policy that is begun for a user has the user in its form.
  await page.click("a[href^='/policies/new']");
  await page.locator("form p", { hasText: PERSON.name }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#name", "Bad Name");
  await page.click("button:has-text('Create policy')");
  await page.locator("#name[aria-invalid=true]").waitFor();
  await page.fill("#name", "own");
  await page.click("button:has-text('Create policy')");
  await page.locator("h1", { hasText: "own" }).waitFor();
  assert.deepEqual([await page.inputValue("#level"), await page.inputValue("#subject")], ["user", PERSON.name]);
  // What changes nothing is said at once, with the rule that holds.
  await page.fill("#waiting", "2000");
  await page.click("button:has-text('Attach')");
  await page.locator("li", { hasText: "of policy default holds" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.click("li a[href*='/detach']");
  await page.click("dialog button.dan, dialog form button");
  await page.locator("[role=status]", { hasText: "own was detached" }).first().waitFor();

  // Detached after a question, and removed.
  await page.goto(`${house.origin}/policies/class`);
  await page.click("li a[href*='/detach']");
  await page.click("dialog button.dan, dialog form button");
  await page.locator("[role=status]", { hasText: "class was detached" }).first().waitFor();
  await page.click("a[href$='/remove']");
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "class was removed" }).first().waitFor();
  assert.deepEqual(complaints.filter((line) => !/422|404/.test(line)), []);
  await context.close();
});

test("a policy gives sessions a network, and a session's page shows what it reached", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  const complaints = listen(page);
  const server = createServer((socket) => socket.on("error", () => {}).end("hello\n"));
  // Where a line below fails, it does not keep this file from its end.
  server.unref();
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address();
  await page.goto(`${house.origin}/policies`);
  await page.fill("#name", "plant");
  await page.click("button:has-text('Create policy')");
  await page.locator("h1", { hasText: "plant" }).waitFor();
  // What cannot be read stands at its field, beside what else was typed.
  await page.fill("#networks", "list none");
  await page.fill("#targets", "db");
  await page.click("button:has-text('Save')");
  await page.locator("#targets[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#networks"), "list none");
  // One a line, which browsers send with a carriage return.
  const targets = `db=127.0.0.1:${port}\nspare=127.0.0.1:9`;
  await page.fill("#targets", targets);
  await page.click("button:has-text('Save')");
  await page.locator("[role=status]", { hasText: "plant was changed" }).first().waitFor();
  assert.equal(await page.inputValue("#targets"), targets);
  // The command line below acts as the machine's own root, who is a member of the project as the administrator is.
  await page.selectOption("#level", "project");
  await page.fill("#subject", "default");
  await page.click("button:has-text('Attach')");
  await page.locator("li", { hasText: "default" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);

  const script = `exec 3<>/dev/tcp/db/${port}; read -r line <&3; echo "got $line"; sleep 600`;
  house.command("run", "--detach", "--name", "reaches", "--cpu", "0.1", "--mem", "64m", "host", "--", "bash", "-c", script);
  const got = () => JSON.parse(house.command("session", "get", "reaches", "-o", "json"));
  await until(() => "it runs", async () => got().state === "running");
  const told = () => JSON.parse(house.command("session", "connections", "reaches", "-o", "json"));
  await until(() => "its connection is counted", async () => JSON.stringify(told()).includes("opened"));
  await page.goto(`${house.origin}/sessions/${got().id}`);
  await page.locator("#connections li", { hasText: `db:${port}` }).waitFor();
  assert.match(await page.locator("#connections").innerText(), /opened/);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);

  // A network that no policy allows is told while it is typed, and refused at its field where it is sent all the same.
  await page.goto(`${house.origin}/sessions/new`);
  await page.evaluate(() => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
  await page.fill("#network", "proxy");
  await page.locator("#why-not", { hasText: "network proxy" }).waitFor();
  assert.ok(await page.locator("button[name=act][value=launch]").isDisabled());
  await page.evaluate(() => {
    const form = document.getElementById("launch");
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "act", value: "launch" }));
    form.submit();
  });
  await page.locator("#network[aria-invalid=true]").waitFor();
  house.command("session", "kill", "reaches");
  assert.deepEqual(complaints.filter((line) => !/4(03|22)/.test(line)), []);
  server.close();
  await context.close();
});

test("a limit is raised for a while, said where limits are, and ended", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/policies`);
  await page.click("a[href='/allowances']");
  await page.locator("#list", { hasText: "No allowances" }).waitFor();
  assert.deepEqual(await violations(page), []);
  // One click from the page of the user, who stands in the form.
  await page.goto(`${house.origin}/users/${PERSON.name}`);
  await page.click("a[href^='/allowances'][href$='key=folder_bytes']");
  assert.equal(await page.inputValue("#subject"), PERSON.name);
  assert.equal(await page.inputValue("#key"), "folder_bytes");
  assert.match(await page.locator("#key-help").innerText(), /^Now: .* of 50 GiB · built in$/);
  assert.match(await page.locator("#value-help").innerText(), /^In MiB, GiB or TiB, for example 100 GiB/);
  assert.deepEqual(await violations(page), []);
  await page.fill("#value", "60 GiB");
  await page.click("button:has-text('Raise limit')");
  await page.locator(".field", { has: page.locator("#time") }).filter({ hasText: "Type for how long" }).waitFor();
  await page.fill("#value", "1 GiB");
  await page.fill("#time", "3d");
  await page.click("button:has-text('Raise limit')");
  await page.locator(".field", { has: page.locator("#value") }).filter({ hasText: "raises nothing" }).waitFor();
  await page.fill("#value", "much");
  await page.fill("#time", "3d");
  await page.click("button:has-text('Raise limit')");
  await page.locator(".field", { has: page.locator("#value") }).filter({ hasText: "such as 50 GiB" }).waitFor();
  // Nothing limits their GPUs: there is nothing to raise.
  assert.match(await page.locator("#key option[value=gpu]").innerText(), /: no limit$/);
  await page.selectOption("#key", "gpu");
  await page.fill("#value", "4");
  await page.click("button:has-text('Raise limit')");
  await page.locator("#key[aria-invalid=true]").waitFor();
  await page.locator(".field", { hasText: "there is nothing to raise" }).waitFor();
  await page.selectOption("#key", "waiting");
  await page.fill("#value", "2000 sessions");
  await page.fill("#time", "3");
  await page.click("button:has-text('Raise limit')");
  await page.locator("#time[aria-invalid=true]").waitFor();
  await page.fill("#value", "2000");
  await page.fill("#time", "soon");
  await page.fill("#reason", "a sweep");
  // The page before has a refused time, too.
  await page.evaluate(() => document.body.classList.add("before"));
  await page.click("button:has-text('Raise limit')");
  await page.locator("body:not(.before) #time[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#value"), "2000");
  assert.equal(await page.inputValue("#key"), "waiting");
  await page.fill("#time", "3d");
  await page.click("button:has-text('Raise limit')");
  // Back at the user, where the form was reached from.
  await page.waitForURL(`**/users/${PERSON.name}*`);
  await page.locator("[role=status]", { hasText: "is raised" }).first().waitFor();
  await page.goto(`${house.origin}/allowances`);
  const row = page.locator("#list tr", { hasText: "a sweep" });
  assert.match(await row.innerText(), /Waiting sessions: 2000\s+\d+ \w{3} \d\d:\d\d/);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.goto(`${house.origin}/users/${PERSON.name}`);
  const limits = page.locator("section", { has: page.locator("#u4") });
  assert.match(await limits.innerText(), /of 2000 · allowance until .*, then 1000/);
  await page.goto(`${house.origin}/events`);
  await page.locator("#list", { hasText: "has higher limits for a while" }).waitFor();
  await page.goto(`${house.origin}/allowances`);
  await row.locator("a[href$='/end']").click();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "was ended" }).first().waitFor();
  await page.locator("#list", { hasText: "No allowances" }).waitFor();
  await context.close();
});

test("pages of policies stand on a phone, in Korean and in the dark", async () => {
  const phone = { viewport: { width: 390, height: 844 }, locale: "ko-KR", colorScheme: "dark" };
  const context = await browser.newContext({ storageState: state, ...phone });
  const page = await context.newPage();
  house.command(
    ...["allowance", "create", "--project", "default", "--folder-bytes", "80g"],
    ...["--for", "3d", "--reason", "논문 마감"],
  );
  for (const path of ["/policies", "/policies/default", "/allowances"]) {
    await page.goto(house.origin + path);
    await page.locator("h1").waitFor();
    assert.equal(await overflow(page), 0, path);
    assert.deepEqual(await violations(page), [], path);
  }
  await context.close();
});
