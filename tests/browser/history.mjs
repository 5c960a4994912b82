// The history of use as a person reads it: by pointer, by keyboard, as a table without script, as a file. The same
// for the metrics of a session, and what a page of GPUs says where there is none.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { launch, listen, overflow, violations } from "./lib/browser.mjs";
import { open, setUp, until } from "./lib/house.mjs";

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
  // A point is kept every ten seconds.
  await until(() => "two points of the history", async () => points("site").length >= 1);
});

after(async () => {
  await browser?.close();
  await house?.close();
});

const points = (of) => JSON.parse(house.command("api", "GET", `/history?of=${of}&range=hour`)).points;

async function visit(path, options = {}) {
  const context = await browser.newContext({ storageState: state, ...options });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(house.origin + path, { waitUntil: "load" });
  return { context, page, complaints };
}

test("values of the history are read under the pointer and by keyboard", async () => {
  const { context, page, complaints } = await visit("/history?range=hour");
  const plot = page.locator(".plot").first();
  await page.locator(".plot[role=slider]").first().waitFor();
  const read = page.locator("figure .read").first();
  await plot.focus();
  assert.match(await read.innerText(), /busy .* · allocated 0\.00/);
  const newest = await plot.getAttribute("aria-valuenow");
  await page.keyboard.press("ArrowLeft");
  assert.equal(Number(await plot.getAttribute("aria-valuenow")), Number(newest) - 1);
  assert.equal(await plot.getAttribute("aria-valuetext"), await read.innerText());
  await page.keyboard.press("Home");
  assert.equal(await plot.getAttribute("aria-valuenow"), "0");
  await page.keyboard.press("End");
  assert.equal(await plot.getAttribute("aria-valuenow"), newest);
  await plot.evaluate((element) => element.blur());
  assert.equal(await read.innerText(), "");
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + box.width - 1, box.y + box.height / 2);
  assert.match(await read.innerText(), /allocated 0\.00/);
  assert.equal(await plot.locator(".cross").count(), 1);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(complaints, []);
  await context.close();
});

test("ranges and subjects stand in the address, and a change shows them", async () => {
  const { context, page } = await visit("/history");
  await page.locator(".filter .seg a", { hasText: "7 d" }).click();
  await page.waitForURL(/range=week/);
  await page.locator(".plot[role=slider]").first().waitFor();
  await Promise.all([page.waitForURL(/of=gpu%3ASIMULATED-H100-1/), page.selectOption("select[name=of]", "gpu:SIMULATED-H100-1")]);
  assert.match(page.url(), /range=week/);
  assert.match(await page.innerText("h1"), /GPU 1/);
  await context.close();
});

test("a time without points says its dates, and another subject is shown at once", async () => {
  const { context, page } = await visit("/history?range=last-week");
  assert.match(await page.innerText(".empty"), /\d+ \w{3}.* – \d+ \w{3}/);
  assert.equal(await page.locator(".filter form button").isVisible(), false);
  await Promise.all([page.waitForURL(/of=user%3Amina/), page.selectOption("select[name=of]", "user:mina")]);
  await context.close();
});

test("without script there is a table of the same values, and a file", async () => {
  const { context, page } = await visit("/history?range=hour", { javaScriptEnabled: false });
  await page.locator(".values summary").click();
  assert.equal(await page.locator(".values tbody tr").count(), 120);
  const head = await page.locator(".values th").allInnerTexts();
  assert.equal(head.length, 9);
  await page.selectOption("select[name=of]", "user:mina");
  await Promise.all([page.waitForURL(/of=user%3Amina/), page.click(".filter form button")]);
  assert.match(await page.innerText("h1"), /mina/);
  await page.goto(`${house.origin}/history?range=hour`);
  const [file] = await Promise.all([page.waitForEvent("download"), page.locator(".head .act a").click()]);
  assert.equal(file.suggestedFilename(), "site-hour.csv");
  const lines = readFileSync(await file.path(), "utf8").trim().split("\r\n");
  assert.ok(lines.length >= 2 && lines.every((line) => line.split(",").length === 9), lines.join("\n"));
  await context.close();
});

for (const path of ["/history", "/history?of=gpu:SIMULATED-H100-0", "/history?of=me&range=month", "/gpus/SIMULATED-H100-0"]) {
  test(`${path} is accessible and fits, in both languages and themes`, async () => {
    for (const [locale, colorScheme] of [["en", "light"], ["ko", "dark"]]) {
      const { context, page, complaints } = await visit(path, { locale, colorScheme });
      for (const width of [1440, 390]) {
        await page.setViewportSize({ width, height: 900 });
        assert.equal(await overflow(page), 0, `${path} at ${width}`);
      }
      const folded = page.locator(".values summary");
      if (await folded.count()) await folded.click();
      assert.deepEqual(await violations(page), []);
      assert.deepEqual(complaints, []);
      await context.close();
    }
  });
}

test("metrics of a session are scaled to what it uses, over a span that one picks", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  house.command("run", "-d", "--kind", "interactive", "--cpu", "0.1", "--mem", "512m", "--gpu", "0.5", "--name", "charted", "host");
  const { context, page, complaints } = await visit("/sessions");
  await page.locator("a.nm", { hasText: "charted" }).first().click();
  await page.locator("#tabs a", { hasText: "Metrics" }).click();
  await page.locator("#console .plot").nth(3).waitFor();
  const memory = page.locator("figure", { has: page.locator("figcaption b", { hasText: /^Memory in use$/ }) });
  // 512 MiB is the limit; a shell uses a few.
  assert.doesNotMatch(await memory.locator(".y").innerText(), /512 MiB/);
  assert.match(await memory.locator("figcaption").innerText(), /limit 512 MiB/);
  const [one, two] = await Promise.all([0, 1].map((place) => page.locator("#console figure").nth(place).boundingBox()));
  assert.ok(Math.abs(one.y - two.y) < 2 && two.x > one.x, "two columns");
  // The reading outlives the stream, which draws the chart again.
  const plot = page.locator("#console .plot").last();
  await plot.focus();
  const before = await page.locator(".values tbody tr").count();
  await until(() => "new samples arrive", async () => (await page.locator(".values tbody tr").count()) > before);
  await until(() => "it is a slider again", async () => (await plot.getAttribute("role")) === "slider");
  assert.notEqual(await page.locator("#console .read").last().innerText(), "");
  assert.equal(await plot.evaluate((element) => element === document.activeElement), true);
  await page.locator(".filter .seg a", { hasText: "All" }).click();
  await page.waitForURL(/range=all/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(complaints, []);
  await context.close();
});

test("a GPU that takes nothing new says why wherever it stands", async () => {
  house.command("gpu", "cordon", "1", "--note", "a fan is loud");
  const { context, page } = await visit("/gpus");
  await page.locator("#plan .why", { hasText: "a fan is loud" }).waitFor();
  // Said once for the page, not once for each device.
  assert.equal(await page.locator("#plan", { hasText: "simulated" }).count(), 0);
  await page.goto(`${house.origin}/gpus/SIMULATED-H100-1`);
  await page.locator("#state", { hasText: "a fan is loud" }).waitFor();
  await context.close();
});

test("a box without a GPU is told what to look at, not how to simulate one", async () => {
  const plain = await open();
  try {
    const context = await browser.newContext();
    const page = await context.newPage();
    await setUp(page, plain);
    await page.goto(`${plain.origin}/gpus`);
    const words = await page.innerText("main");
    assert.match(words, /nvidia-smi|driver/);
    assert.doesNotMatch(words, /simulate|Rules for shares/);
    await page.locator("main a[href='/system/checks']").waitFor();
    await context.close();
  } finally {
    await plain.close();
  }
});
