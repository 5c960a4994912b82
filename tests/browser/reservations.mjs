// A teacher books all twelve GPUs in the browser; the week and the list show it, who runs there is warned, a change and a
// cancellation are seen, and what was cancelled is given to waiting sessions. A lead books within the quota of the project,
// also all twelve, and asks an administrator for more.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { client, cookieOf } from "./lib/crowd.mjs";
import { addUser, openWith, PERSON, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await openWith({}, "--simulate-gpus", "H100:12");
  const context = await browser.newContext({ timezoneId: "UTC" });
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// A local time in so many minutes, as the field takes it; in UTC, as the page of this test.
const ahead = (minutes) => new Date(Date.now() + minutes * 60_000).toISOString().slice(0, 16);

/// Those of the administrator, for the API.
const cookies = () => state.cookies.map(({ name, value }) => `${name}=${value}`).join("; ");

const visit = (more = {}) =>
  browser.newContext({ storageState: state, locale: "en-US", timezoneId: "UTC", ...more });

test("a reservation is booked, changed and cancelled in the page", async () => {
  const context = await visit();
  const page = await context.newPage();
  const complaints = listen(page);
  // A session of the teacher's own holds one of the GPUs.
  const resources = { cpu: 0.1, memory: 64 << 20, gpu: 1 };
  const made = await client(house.origin, cookies())("/sessions", {
    name: "works",
    kind: "batch",
    image: "host",
    command: ["sleep", "600"],
    resources,
  });
  const [works] = made.items ?? [made];
  const stateOf = (session) => JSON.parse(house.command("session", "get", session, "-o", "json")).state;
  await until(() => `it has a place: ${stateOf(works.id)}`, async () => stateOf(works.id) !== "pending");
  await page.goto(`${house.origin}/reservations`);
  await page.locator("#list", { hasText: "There are no reservations" }).waitFor();
  assert.deepEqual(await violations(page), []);

  // What was refused stands at its field.
  await page.fill("#name", "lecture");
  await page.fill("#from", ahead(-600));
  await page.fill("#to", ahead(-540));
  await page.fill("#gpu", "12");
  await page.selectOption("#holder", "maintenance");
  await page.click("button:has-text('Book')");
  await page.locator("#from[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#holder"), "maintenance");
  assert.equal(await page.inputValue("#gpu"), "12");
  await page.fill("#from", ahead(14 * 1440));
  await page.fill("#to", ahead(14 * 1440 + 60));
  await page.fill("#gpu", "13");
  await page.click("button:has-text('Book')");
  await page.locator("#gpu[aria-invalid=true]").waitFor();
  assert.equal(await page.locator(".week [aria-current=date]").count(), 0, "the week that was meant");
  await page.fill("#from", ahead(5));
  await page.fill("#to", ahead(125));
  assert.deepEqual(await violations(page), []);
  await page.fill("#gpu", "12");
  await page.click("button:has-text('Book')");
  await page.locator("[role=status]", { hasText: "lecture was booked" }).first().waitFor();
  const row = page.locator("#list tr", { hasText: "lecture" });
  assert.match(await row.innerText(), /12 GPUs/);
  await page.locator(".week", { hasText: "lecture" }).waitFor();
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);

  // Another one at the same time reads when everything is free, by the clock of the page.
  // The form stands above the week, folded while there is something to see.
  await page.click("summary:has-text('New reservation')");
  const [form, week] = [page.locator("form .fault, #name").first(), page.locator(".week")];
  const top = async (part) => (await part.boundingBox()).y;
  assert.ok((await top(form)) < (await top(week)), "the form is above the week");
  await page.fill("#name", "second");
  await page.fill("#from", ahead(10));
  await page.fill("#to", ahead(70));
  await page.fill("#gpu", "1");
  await page.selectOption("#holder", "maintenance");
  await page.click("button:has-text('Book')");
  await page.locator("form .fault", { hasText: /room from \d+ \w+ \d+:\d+/ }).waitFor();

  // Less than 15 minutes are left: who waits is told that it is reserved, not for whom.
  await until(
    () => "its GPUs are chosen",
    async () => JSON.parse(house.command("reservation", "get", "lecture", "-o", "json")).state === "warned",
  );
  await page.goto(`${house.origin}/notices`);
  await page.locator("#list", { hasText: "is stopped for a reservation that begins" }).waitFor();
  house.command("run", "-d", "--gpu", "11", "--cpu", "0.1", "--mem", "64m", "--name", "waits", "host", "--", "sleep", "100");
  await until(() => "it waits", async () => /are reserved until/.test(house.command("why", "waits")));
  assert.doesNotMatch(house.command("why", "waits"), /lecture/);

  // Its name may change still, its amounts may not.
  await page.goto(`${house.origin}/reservations`);
  await row.locator("a", { hasText: "lecture" }).click();
  await page.locator("h1", { hasText: "lecture" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await page.fill("#gpu", "1");
  await page.click("button:has-text('Save')");
  await page.locator("form .fault", { hasText: "begins soon or has begun" }).waitFor();
  await page.fill("#gpu", "12");
  await page.fill("#name", "seminar");
  await page.click("button:has-text('Save')");
  await page.locator("[role=status]", { hasText: "seminar was changed" }).first().waitFor();

  await page.locator("#list tr", { hasText: "seminar" }).locator("a[href$='/cancel']").click();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "was cancelled" }).first().waitFor();
  // All that it kept is given back at once: the session needs the eleven GPUs together.
  await until(() => `it has a place: ${stateOf("waits")}`, async () => stateOf("waits") !== "pending");
  await page.goto(`${house.origin}/events`);
  await page.locator("#list", { hasText: "Cancelled a reservation" }).waitFor();
  assert.deepEqual(complaints.filter((line) => !/422|409|404/.test(line)), []);
  await context.close();
});

test("a booking of another zone says in which zone its form is, and when it is by the reader's clock", async () => {
  const from = new Date(Date.now() + 2 * 86_400_000);
  from.setUTCHours(3, 0, 0, 0);
  const local = (hours) => new Date(from.getTime() + hours * 3_600_000).toISOString().slice(0, 16);
  house.command("reservation", "book", "abroad", "--maintenance", "--gpu", "1", "--from", local(0), "--to", local(2), "--time-zone", "UTC");
  const context = await visit();
  await context.addCookies([{ name: "fardel_zone", value: "Asia/Seoul", url: house.origin }]);
  const page = await context.newPage();
  await page.goto(`${house.origin}/reservations`);
  await page.locator("#list a", { hasText: "abroad" }).click();
  await page.locator("h1", { hasText: "abroad" }).waitFor();
  assert.equal(await page.inputValue("#from"), local(0));
  assert.match(await page.locator("#from-help").innerText(), /booking: UTC\. By your clock: .* 12:00 – 14:00\./);
  assert.deepEqual(await violations(page), []);
  house.command("reservation", "cancel", "abroad");
  await context.close();
});

test("a lead books within the quota, asks for more, and an administrator decides in the page", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fardel-reservations-"));
  const password = join(folder, "password");
  writeFileSync(password, `${PERSON.password}\n`, { mode: 0o600 });
  house.command("user", "add", "tom", "--password-file", password);
  rmSync(folder, { recursive: true, force: true });
  house.command("project", "create", "vision");
  house.command("project", "add", "vision", "tom", "--role", "lead");

  // The administrator sets the quota on the page of the project; what is wrong stands at its field.
  const office = await visit();
  const desk = await office.newPage();
  const complaints = listen(desk);
  const id = JSON.parse(house.command("project", "get", "vision", "-o", "json")).id;
  await desk.goto(`${house.origin}/projects/${id}`);
  await desk.fill("#gpu_hours", "many");
  await desk.click("form[action$='/quota'] button");
  await desk.locator("#gpu_hours[aria-invalid=true]").waitFor();
  assert.equal(await desk.inputValue("#gpu_hours"), "many");
  await desk.fill("#gpu_hours", "2");
  await desk.click("form[action$='/quota'] button");
  await desk.locator("[role=status]", { hasText: "2.00 GPU-hours" }).first().waitFor();
  assert.deepEqual(await violations(desk), []);

  const lesson = await browser.newContext({ locale: "en-US", timezoneId: "UTC" });
  const page = await lesson.newPage();
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", "tom");
  await page.fill("#password", PERSON.password);
  await Promise.all([page.waitForURL(`${house.origin}/`), page.click("form[action='/login'] button[type=submit]")]);
  await page.goto(`${house.origin}/projects/${id}`);
  await page.locator("main", { hasText: "2.00 left now" }).waitFor();
  assert.equal(await page.locator("#gpu_hours").count(), 0, "a lead reads it");

  const book = async (name, day, hours) => {
    await page.goto(`${house.origin}/reservations`);
    if (!(await page.locator("#name").isVisible())) await page.click("summary:has-text('New reservation')");
    await page.fill("#name", name);
    await page.fill("#from", ahead(day * 1440));
    await page.fill("#to", ahead(day * 1440 + hours * 60));
    await page.fill("#gpu", "1");
    await page.selectOption("#holder", "project:default/vision");
    await page.click("button:has-text('Book')");
  };
  await page.goto(`${house.origin}/reservations`);
  await page.locator("form[action='/reservations']", { hasText: "2.00 of 2.00 GPU-hours left" }).waitFor({ state: "attached" });
  assert.deepEqual(await violations(page), []);
  await book("lab", 20, 1);
  await page.locator("[role=status]", { hasText: "lab was booked" }).first().waitFor();
  for (const name of ["exam", "party", "outing"]) {
    await book(name, 20, 2);
    await page.locator("[role=status]", { hasText: `${name} was requested` }).first().waitFor();
  }
  assert.equal(await page.locator("form[action$='/decide']").count(), 0, "a lead does not decide");
  await page.locator("#list tr", { hasText: "outing" }).locator("a[href$='/withdraw']").click();
  await page.click("dialog form button");
  await page.locator("[role=status]", { hasText: "outing was withdrawn" }).first().waitFor();

  // The bell leads the administrator to the requests, above everything else.
  await desk.goto(`${house.origin}/notices`);
  await desk.locator("#list", { hasText: "was requested for default/vision" }).waitFor();
  await desk.goto(`${house.origin}/reservations`);
  const request = (name) => desk.locator("form[action$='/decide']", { hasText: name });
  await request("exam").waitFor();
  assert.equal(await request("outing").count(), 0);
  assert.deepEqual(await violations(desk), []);
  assert.equal(await overflow(desk), 0);
  await request("party").locator("button", { hasText: "Refuse" }).click();
  await request("party").locator("input[aria-invalid=true]").waitFor();
  await request("party").locator("input").fill("GPUs are for work.");
  await request("party").locator("button", { hasText: "Refuse" }).click();
  await desk.locator("[role=status]", { hasText: "party was refused" }).first().waitFor();
  await request("exam").locator("button", { hasText: "Approve" }).click();
  await desk.locator("[role=status]", { hasText: "exam was approved" }).first().waitFor();
  assert.equal(await desk.locator("form[action$='/decide']").count(), 0);

  await page.goto(`${house.origin}/notices`);
  const told = page.locator("#list");
  await told.getByText("was approved and is booked").first().waitFor();
  await told.getByText("GPUs are for work.").first().waitFor();
  assert.deepEqual(await violations(page), []);
  for (const name of ["lab", "exam"]) house.command("reservation", "cancel", name);
  assert.deepEqual(complaints.filter((line) => !/422|409|404/.test(line)), []);
  await lesson.close();
  await office.close();
});

test("a lead who administers nothing books all twelve GPUs, and gives them back by cancelling", async () => {
  // On a site that asks leads for no day's notice.
  const site = await openWith({ FARDEL_RESERVATION_NOTICE_HOURS: "0" }, "--simulate-gpus", "H100:12");
  try {
    const office = await browser.newContext({ locale: "en-US", timezoneId: "UTC" });
    const desk = await office.newPage();
    await setUp(desk, site);
    await addUser(desk, site, { name: "kay", password: PERSON.password });
    site.command("project", "create", "robotics");
    site.command("project", "add", "robotics", "kay", "--role", "lead");
    site.command("project", "quota", "robotics", "--gpu-hours", "24");
    const run = (name, gpu) =>
      site.command("run", "-d", "--gpu", gpu, "--cpu", "0.1", "--mem", "64m", "--name", name, "host", "--", "sleep", "600");
    const stateOf = (name) => JSON.parse(site.command("session", "get", name, "-o", "json")).state;
    const signed = (await office.cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
    const made = await client(site.origin, signed)("/sessions", {
      name: "works",
      kind: "batch",
      image: "host",
      command: ["sleep", "600"],
      resources: { cpu: 0.1, memory: 64 << 20, gpu: 1 },
    });
    const [works] = made.items ?? [made];
    await until(() => `it has a place: ${stateOf(works.id)}`, async () => stateOf(works.id) !== "pending");

    const lesson = await browser.newContext({ locale: "en-US", timezoneId: "UTC" });
    const page = await lesson.newPage();
    await page.goto(`${site.origin}/login`);
    await page.fill("#name", "kay");
    await page.fill("#password", PERSON.password);
    await Promise.all([page.waitForURL(`${site.origin}/`), page.click("form[action='/login'] button[type=submit]")]);
    const complaints = listen(page);
    const book = async (name, gpu, minutes, hours) => {
      await page.goto(`${site.origin}/reservations`);
      if (!(await page.locator("#name").isVisible())) await page.click("summary:has-text('New reservation')");
      await page.fill("#name", name);
      await page.fill("#from", ahead(minutes));
      await page.fill("#to", ahead(minutes + hours * 60));
      await page.fill("#gpu", gpu);
      await page.selectOption("#holder", "project:default/robotics");
      await page.click("button:has-text('Book')");
    };
    await page.goto(`${site.origin}/users`);
    assert.equal(await page.locator("a[href='/users/new']").count(), 0, "kay administers nothing");
    await book("class", "12", 5, 1);
    await page.locator("[role=status]", { hasText: "class was booked" }).first().waitFor();
    const row = page.locator("#list tr", { hasText: "class" });
    assert.match(await row.innerText(), /12 GPUs/);
    assert.equal(await overflow(page), 0);
    assert.deepEqual(await violations(page), []);
    // Twelve more hours are left, and thirteen are more than the quota.
    await book("course", "12", 2880, 2);
    await page.locator("[role=status]", { hasText: "course was requested" }).first().waitFor();

    // Who runs there is told; who waits for what is kept is not told for whom.
    const kept = () => JSON.parse(site.command("reservation", "get", "class", "-o", "json")).state;
    await until(() => `its GPUs are chosen: ${kept()}`, async () => kept() === "warned");
    await desk.goto(`${site.origin}/notices`);
    await desk.locator("#list", { hasText: "is stopped for a reservation that begins" }).waitFor();
    run("waits", "11");
    await until(() => "it waits", async () => /are reserved until/.test(site.command("why", "waits")));
    assert.equal(stateOf("waits"), "pending");

    await page.goto(`${site.origin}/reservations`);
    await row.locator("a[href$='/cancel']").click();
    await page.click("dialog form button");
    await page.locator("[role=status]", { hasText: "reservation was cancelled" }).first().waitFor();
    await until(() => `it has a place: ${stateOf("waits")}`, async () => stateOf("waits") !== "pending");
    assert.deepEqual(complaints.filter((line) => !/422|409|404|403/.test(line)), []);
    await lesson.close();
    await office.close();
  } finally {
    await site.close();
  }
});

test("1, 50 and 500 reservations and 30 requests stay readable on a phone and on a desk", async () => {
  const admin = client(house.origin, cookies());
  await admin("/users", { name: "ann", password: PERSON.password, role: "user" });
  house.command("project", "create", "labs");
  house.command("project", "add", "labs", "ann", "--role", "lead");
  const lead = client(house.origin, await cookieOf(house.origin, "ann", PERSON.password));
  const asked = (name, minutes, of) => ({
    name,
    ...of,
    resources: { gpu: 1 },
    from: new Date(Date.now() + minutes * 60_000).toISOString(),
    to: new Date(Date.now() + (minutes + 60) * 60_000).toISOString(),
  });
  // Without a quota everything is asked for.
  for (let n = 1; n <= 30; n += 1) await lead("/reservations", asked(`ask-${n}`, 2880 + n * 90, { project: "labs" }));

  const desk = await visit({ viewport: { width: 1440, height: 900 } });
  const phone = await visit({ viewport: { width: 390, height: 844 }, locale: "ko-KR", colorScheme: "dark" });
  const [wide, narrow] = [await desk.newPage(), await phone.newPage()];
  let made = 0;
  for (const count of [1, 50, 500]) {
    for (; made < count; made += 1) await admin("/reservations", asked(`slot-${made}`, 1440 + made * 90, { maintenance: true }));
    for (const page of [wide, narrow]) {
      await page.goto(`${house.origin}/reservations`);
      await page.locator("#list tbody tr").first().waitFor();
      assert.equal(await overflow(page), 0, `${count} reservations`);
      assert.equal(await page.locator("form[action$='/decide']").count(), 25, "the first requests have forms");
      assert.deepEqual(await violations(page), [], `${count} reservations`);
    }
  }
  // A day shows some of what it has, and says how many more there are.
  await wide.click("a:has-text('Next week')");
  await wide.waitForURL(/week=/);
  assert.equal(await wide.locator(".week > li").count(), 7);
  await wide.locator(".week", { hasText: /and \d+ more/ }).waitFor();
  // The other requests are a click away.
  await wide.locator("a", { hasText: "5 more requests" }).click();
  await wide.waitForURL(/q=state/);
  assert.equal(await wide.locator("#list tbody tr").count(), 30);
  assert.equal(await overflow(wide), 0);
  const { id } = JSON.parse(house.command("reservation", "get", "slot-1", "-o", "json"));
  await narrow.goto(`${house.origin}/reservations/${id}`);
  await narrow.locator("h1").waitFor();
  assert.equal(await overflow(narrow), 0);
  assert.deepEqual(await violations(narrow), []);
  await desk.close();
  await phone.close();
});
