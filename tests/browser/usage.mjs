// What users used in a month: two clicks from anywhere, by user and by project, as a table, charts and a file.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:1");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

test("a month of use is found, summed and exported", async (t) => {
  if (process.getuid() !== 0) return t.skip("needs root: a session has to run");
  const context = await browser.newContext({ storageState: state, locale: "en-US", acceptDownloads: true });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(`${house.origin}/usage`);
  await page.locator(".empty", { hasText: "Nothing was used in this month" }).waitFor();
  assert.deepEqual(await violations(page), []);

  house.command("run", "--detach", "--name", "used", "--cpu", "0.4", "--gpu", "0.5", "host", "sleep", "600");
  const said = () => JSON.parse(house.command("session", "get", "used", "-o", "json"));
  await until(() => "it runs", async () => said().state === "running");
  await new Promise((done) => setTimeout(done, 3000));
  house.command("session", "kill", "used");
  await until(() => "it is over", async () => said().state === "ended");

  await page.goto(`${house.origin}/`);
  await page.click("nav >> text=Usage");
  // The command line on the machine itself is root's.
  await page.locator("tbody tr", { hasText: "root" }).first().waitFor();
  assert.match(await page.locator(".sums").innerText(), /GPU-hours/i);
  assert.equal(await page.locator("figure .ln").count(), 2, "a curve of GPU-hours and one of core-hours");
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.selectOption("select[name=by]", "project");
  await page.locator("tbody tr", { hasText: "default" }).first().waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a[href^='/usage/export']")]);
  const { readFileSync } = await import("node:fs");
  const lines = readFileSync(await download.path(), "utf8").trim().split("\r\n").map((line) => line.split(","));
  assert.deepEqual(lines[0].slice(0, 4), ["domain", "project", "gpu_seconds", "cpu_seconds"]);
  assert.deepEqual(lines.at(-1).slice(2), lines[1].slice(2), "one project is the total");
  assert.ok(Number(lines[1][2]) >= 1.5, `half a device for three seconds: ${lines[1]}`);

  // The month before has nothing, and leads back.
  await page.click("a[rel=prev]");
  await page.locator(".empty").waitFor();
  await page.click("a[rel=next]");
  await page.locator("tbody tr", { hasText: "default" }).first().waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await overflow(page), 0);
  assert.deepEqual(complaints, []);
  await context.close();
});

test("statements are two clicks from the overview, and prices are set beside them", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/`);
  await page.click("nav >> text=Usage");
  await page.click(".head a[href='/statements']");
  await page.locator("h1", { hasText: "Statements" }).waitFor();
  await page.locator(".empty", { hasText: "No month is closed yet" }).waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.fill("#currency", "KRW");
  await page.fill("#gpu_hour", "much");
  await page.click("form[action='/statements/prices'] button");
  await page.locator("#gpu_hour[aria-invalid=true]").waitFor();
  assert.equal(await page.inputValue("#currency"), "KRW");
  await page.fill("#gpu_hour", "1500.5");
  await page.click("form[action='/statements/prices'] button");
  await page.locator("[role=status]", { hasText: "The prices were saved" }).first().waitFor();
  assert.equal(await page.inputValue("#gpu_hour"), "1500.5");
  // The month that runs cannot be closed: the question is asked, and the answer says why not.
  const month = new Date().toISOString().slice(0, 7);
  await page.goto(`${house.origin}/statements/close?month=${month}`);
  await page.locator("h1, h2", { hasText: `Close ${month}?` }).first().waitFor();
  // The zone is shown before it is settled.
  assert.match(await page.locator("#dialog-lead").innerText(), /months are counted in [A-Z]\S+\./);
  assert.deepEqual(await violations(page), []);
  await page.click(`button:has-text('Close ${month}')`);
  await page.locator("body", { hasText: /is not over|there is no month to close/ }).waitFor();
  await context.close();
});
