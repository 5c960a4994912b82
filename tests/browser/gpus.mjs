// Shares of GPUs as a person meets them, on simulated devices: ask for one, see where it would go, wait
// and read why, make it larger, close a card, cut one, empty one. On every page: no violation of
// accessibility, nothing refused by the server's own policy, nothing wider than the screen.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, listen, looks, overflow, violations } from "./lib/browser.mjs";
import { open, openWith, setUp, until } from "./lib/house.mjs";

const PAGES = ["/", "/?by=load", "/?by=memory", "/gpus", "/gpus?by=load", "/gpus?by=memory", "/gpus/SIMULATED-H100-0", "/gpus/SIMULATED-H100-2", "/gpus/SIMULATED-H100-0/test", "/sessions", "/sessions/new", "/queue", "/docs/gpus"];

let browser;
let house;
let state;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2,H100:1/3g.40gb/2g.20gb/1g.10gb");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

async function visit(path) {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const complaints = listen(page);
  await page.goto(house.origin + path, { waitUntil: "load" });
  return { context, page, complaints };
}

/// Everything that must hold of a page as it stands now.
async function sound({ page, complaints }) {
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(complaints, []);
}

/// Does `act`, and waits for the answer of the form's preview that it causes.
async function previewed(page, path, act) {
  await Promise.all([page.waitForResponse((answer) => answer.url().endsWith(path)), act()]);
}

test("a share is picked by its size, told in GiB and SMs, and drawn where it would go", async () => {
  const seen = await visit("/sessions/new");
  const { page } = seen;
  // An empty box asks for none: the handle stands at its left end.
  await page.fill("#gpu", "0.35");
  await previewed(page, "/sessions/new/preview", () => page.fill("#gpu", ""));
  assert.equal(await page.inputValue("[data-for=gpu]"), "0");
  await previewed(page, "/sessions/new/preview", () => page.click("button[data-share='0.5']"));
  assert.equal(await page.inputValue("#gpu"), "0.5");
  assert.equal(await page.innerText("#share-note"), "40 GiB, 66 of 132 SMs");
  await page.locator("#preview .sl.ghost").first().waitFor();
  // Previews of what was typed before may still come.
  await page.locator("#preview .verdict b", { hasText: /^Starts now on GPU \d$/ }).waitFor();
  assert.match(await page.innerText("#cli-line"), /--gpu 0\.5 /);
  assert.match(await page.innerText("#preview"), /simulated/);
  await sound(seen);
  // A session has a share or a partition: what was picked last stands.
  await previewed(page, "/sessions/new/preview", () => page.locator("input[name=mig][value='3g.40gb']").check({ force: true }));
  assert.equal(await page.inputValue("#gpu"), "");
  await until(async () => page.innerText("#cli-line"), async () => /--mig 3g\.40gb/.test(await page.innerText("#cli-line")));
  await previewed(page, "/sessions/new/preview", () => page.fill("#gpu", "0.35"));
  assert.equal(await page.locator("input[name=mig][value='']").isChecked(), true);
  assert.equal(await page.innerText("#share-note"), "28 GiB, 46 of 132 SMs");
  // Where there are GPUs, a usual size has a share of one.
  await previewed(page, "/sessions/new/preview", () => page.click("#sizes .chip:has-text('With a GPU')"));
  assert.equal(await page.inputValue("#gpu"), "0.25");
  await seen.context.close();
});

for (const [typed, field, words] of [
  ["0.005", "gpu", /Use 0\.35, 1 or 2\.5/],
  ["1.01", "gpu", /Use 1 or 1\.1/],
  ["-1", "gpu", /Use 0\.35, 1 or 2\.5/],
  ["NaN", "gpu", /Use 0\.35, 1 or 2\.5/],
  ["100", "gpu", /is the most/],
]) {
  test(`a share of ${typed} is refused beside its field, and what was typed stays`, async () => {
    const seen = await visit("/sessions/new");
    const { page } = seen;
    await previewed(page, "/sessions/new/preview", () => page.fill("#gpu", typed));
    await page.evaluate(() => document.querySelector("[data-launch]").requestSubmit());
    await page.locator(`[data-fault=${field}]`).waitFor();
    assert.match(await page.locator(`[data-fault=${field}]`).innerText(), words);
    assert.equal(await page.inputValue("#gpu"), typed);
    await seen.context.close();
  });
}

test("a session with a share is launched, made larger, and says so wherever it stands", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  house.command("run", "-d", "--kind", "interactive", "--cpu", "0.1", "--mem", "64m", "--gpu", "0.5", "--name", "half", "host");
  const seen = await visit("/sessions");
  const { page } = seen;
  await page.locator("tr", { hasText: "half" }).locator("td", { hasText: /^0\.5/ }).waitFor();
  await page.locator("tr", { hasText: "half" }).locator("a.nm").click();
  await page.locator("#where", { hasText: "0.50 = 40 GiB, 66 of 132 SMs" }).waitFor();
  await until(() => "it runs", async () => (await page.innerText("#state")) === "Running");
  await page.click("button[popovertarget=limits]");
  await page.fill("#new-gpu", "0.75");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#limits button.pri")]);
  await page.locator("#where", { hasText: "0.75 = 60 GiB, 99 of 132 SMs" }).waitFor();
  // Two whole cards are not to be had now: the queue says so in a sentence.
  house.command("run", "-d", "--cpu", "0.1", "--mem", "64m", "--gpu", "2", "--name", "two-cards", "host", "--", "true");
  await page.goto(`${house.origin}/queue`);
  await page.locator("#queue li", { hasText: "two-cards" }).locator(".why", { hasText: /needs 2 whole GPUs/ }).waitFor();
  await page.locator("#queue li", { hasText: "2 GPU" }).waitFor();
  await sound(seen);
  house.command("session", "stop", "two-cards");
  await seen.context.close();
});

test("the menu counts sessions on the page of the GPUs as they start and end", async () => {
  const seen = await visit("/gpus");
  const count = async () => Number(await seen.page.locator("[data-count='0']").first().textContent());
  const before = await count();
  house.command("session", "create", "--kind", "batch", "--name", "counted", "host", "--", "sleep", "600");
  await until(() => "the session is counted", async () => (await count()) === before + 1);
  house.command("session", "kill", "counted");
  await until(() => "its end is counted", async () => (await count()) === before);
  await sound(seen);
  await seen.context.close();
});

test("what a share is used for is shown on the floor plan and on the session's page, and said to be simulated", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const seen = await visit("/gpus");
  const { page } = seen;
  const slice = page.locator("#plan .sl", { hasText: "half" }).first();
  await slice.locator(".u").waitFor();
  assert.match(await slice.getAttribute("title"), /half, .*% busy · \S+ of 60 GiB in use/);
  await Promise.all([page.waitForEvent("framenavigated"), page.click(".seg a[href='/gpus?by=load']")]);
  await slice.locator("span", { hasText: /^\d+% of 0\.75$/ }).first().waitFor();
  await sound(seen);
  await Promise.all([page.waitForEvent("framenavigated"), page.click(".seg a[href='/gpus?by=memory']")]);
  await slice.locator("span", { hasText: /^\S+ of 60 GiB$/ }).first().waitFor();
  await sound(seen);
  await page.goto(`${house.origin}/?by=load`);
  await slice.locator("span", { hasText: /^\d+% of 0\.75$/ }).first().waitFor();
  await sound(seen);
  await slice.click();
  const strip = (name) => page.locator("#strips > div", { hasText: name });
  await strip("GPU busy").locator("b", { hasText: /^\d+% of its 0\.75 · simulated$/ }).waitFor();
  await strip("GPU memory").locator("b", { hasText: /of 60 GiB · simulated$/ }).waitFor();
  assert.equal(await page.locator("#strips > div").count(), 4);
  assert.match(await page.locator("#notice").innerText(), /no device inside.*nvidia-smi/s);
  assert.equal(await page.locator("#notice a[href='/docs/gpus#sees']").count(), 1);
  await sound(seen);
  await seen.context.close();
});

test("a card is closed with a word, cut, made whole and emptied, and whom that ends is told before", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const seen = await visit("/gpus/SIMULATED-H100-1");
  const { page } = seen;
  const told = await page.locator("#verbs-help").innerText();
  assert.match(told, /Cordon: .*continue\. Drain: .*end\./);
  await page.click("button[popovertarget=cordon]");
  assert.match(await page.locator("#cordon h2").innerText(), /^Cordon GPU 1 of \S+$/);
  assert.match(await page.locator("#drain h2").textContent(), /^Drain GPU 1 of \S+$/);
  await page.fill("#cordon-note", "a fan is loud");
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#cordon button.pri")]);
  await page.locator("#state", { hasText: "a fan is loud" }).waitFor();
  await sound(seen);
  await Promise.all([page.waitForEvent("framenavigated"), page.click("form[action$='/uncordon'] button")]);

  await previewed(page, "/partitions/preview", () => page.fill("[id='n-3g.40gb']", "3"));
  await page.locator("#partitions .verdict.never").waitFor();
  assert.equal(await page.locator("#partitions button[value=partition]").isDisabled(), true);
  await previewed(page, "/partitions/preview", () => page.fill("[id='n-3g.40gb']", "2"));
  await page.locator("#partitions .verdict", { hasText: "No session has to end" }).waitFor();
  assert.equal(await page.locator("#partitions .sl").count(), 2);
  await sound(seen);
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#partitions button[value=partition]")]);
  await page.locator("#state .sl", { hasText: "3g.40gb" }).first().waitFor();

  // The other card has a session: its end is told, and nothing happens until the button is pressed.
  await page.goto(`${house.origin}/gpus/SIMULATED-H100-0`);
  await previewed(page, "/partitions/preview", () => page.fill("[id='n-7g.80gb']", "1"));
  await page.locator("#partitions .checks li", { hasText: "half" }).waitFor();
  await sound(seen);
  await page.click("button[popovertarget=drain]");
  await page.locator("#drain li", { hasText: "half" }).waitFor();
  await Promise.all([page.waitForEvent("framenavigated"), page.click("#drain button.dan")]);
  const drained = page.locator("[role=status]", { hasText: "GPU 0 takes no new sessions. 1 session was asked to end." });
  await drained.first().waitFor();
  await page.locator("#slices .empty").waitFor();
  await sound(seen);
  await seen.context.close();
});

test("without script a layout is checked by a button that says so", async () => {
  const context = await browser.newContext({ storageState: state, javaScriptEnabled: false, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/gpus/SIMULATED-H100-1`);
  await page.fill("[id='n-3g.40gb']", "3");
  await page.getByRole("button", { name: "Check without applying" }).click();
  await page.locator("#partitions .verdict", { hasText: "This layout is not possible" }).waitFor();
  assert.equal(await page.inputValue("[id='n-3g.40gb']"), "3");
  await context.close();
});

test("every partition tells its whole profile, also on a phone, free and taken", async (t) => {
  const root = process.getuid() === 0;
  if (root) {
    house.command("run", "-d", "--mig", "1g.10gb", "--cpu", "0.1", "--mem", "64m", "--name", "a-name-that-is-long", "host", "--", "sleep", "3333");
    await until(() => "it runs", async () => JSON.parse(house.command("session", "get", "a-name-that-is-long", "-o", "json")).state === "running");
  } else {
    t.diagnostic("sessions need root: all partitions are free");
  }
  const seen = await visit("/");
  const { page } = seen;
  const told = [];
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 900 });
    for (const path of ["/", "/gpus", "/gpus/SIMULATED-H100-2"]) {
      await page.goto(house.origin + path);
      const parts = await page.evaluate(() => [...document.querySelectorAll("main .rack .sl:not(#partitions *)")].flatMap((block) => {
        const profile = block.title.match(/\d+g\.\d+gb/)?.[0];
        if (!profile) return [];
        const box = block.getBoundingClientRect();
        const walker = document.createTreeWalker(block, NodeFilter.SHOW_ELEMENT);
        for (let part = walker.nextNode(); part; part = walker.nextNode()) {
          if (!part.textContent.includes(profile) || part.matches(".sr")) continue;
          const range = document.createRange();
          range.selectNodeContents(part);
          const boxes = [...range.getClientRects()];
          const inside = boxes.every((one) => one.left >= box.left && one.right <= box.right && one.bottom <= box.bottom + 1);
          const size = parseFloat(getComputedStyle(part).fontSize);
          return [{ profile, seen: inside && boxes.length > 0, size, width: box.width }];
        }
        return [{ profile, seen: false, size: 0, width: box.width }];
      }));
      const small = parts.filter(({ profile }) => profile === "1g.10gb");
      if (small.length !== 1) told.push(`${width} ${path}: ${JSON.stringify(parts)}`);
      told.push(...parts.filter((part) => !part.seen || part.size < 10).map((part) => `${width} ${path}: ${JSON.stringify(part)}`));
    }
    await sound(seen);
  }
  assert.deepEqual(told, []);
  if (root) house.command("session", "kill", "a-name-that-is-long");
  await seen.context.close();
});

test("a simulated card is not tested, and its page says why", async () => {
  const seen = await visit("/gpus/SIMULATED-H100-0/test");
  const { page } = seen;
  assert.match(await page.innerText("main"), /A simulated GPU does not exist/);
  assert.equal(await page.locator("main .empty").count(), 1, "one place says that there is no result");
  assert.equal(await page.locator("form[action$='/test']").count(), 0);
  await sound(seen);
  // Whoever asks all the same is told so, and nothing begins.
  const answer = await page.evaluate(async () => {
    const said = await fetch("/gpus/SIMULATED-H100-0/test", { method: "POST", body: new URLSearchParams() });
    return { status: said.status, text: await said.text() };
  });
  assert.equal(answer.status, 409);
  assert.match(answer.text, /gpu\.test-simulated/);
  assert.equal(await page.locator("#state .bar").count(), 0);
  await seen.context.close();
});

test("a card is tested by its button, shown as it goes, judged, and printed as one document", async (t) => {
  const card = process.env.FARDEL_CARD;
  if (!card || process.getuid() !== 0) {
    t.skip(card ? "sessions need root" : "no card was laid at FARDEL_CARD");
    return;
  }
  const own = await openWith({ FARDEL_DRIVER_ROOT: join(card, "root") });
  try {
    const context = await browser.newContext();
    const page = await context.newPage();
    const complaints = listen(page);
    await setUp(page, own);
    await page.goto(`${own.origin}/gpus`);
    // A driver that the test has not passed is amber, on the card's page and on the test's own.
    await page.locator(".gpu .id a").first().click();
    const amber = page.locator(".pill.warn", { hasText: "not tested with this driver" });
    await amber.first().waitFor();
    await page.locator("a[href$='/test']").first().click();
    await page.waitForURL(/\/test$/);
    await amber.first().waitFor();
    await page.locator("#found .empty", { hasText: "This GPU was never tested" }).waitFor();
    assert.deepEqual(await violations(page), []);

    await Promise.all([page.waitForEvent("framenavigated"), page.click("form[action$='/test'] button")]);
    const figures = new Set();
    const steps = new Set();
    const results = page.locator("#found h2");
    const end = Date.now() + 240_000;
    while ((await results.count()) === 0) {
      assert.ok(Date.now() < end, `no result; ${[...steps]}`);
      const said = await page.evaluate(() => document.querySelector("#state section p")?.innerText ?? "");
      const [, done] = said.match(/(\d+) of \d+/) ?? [];
      if (done) figures.add(Number(done));
      const step = await page.evaluate(() => document.querySelector("#state .mono")?.innerText ?? "");
      if (step) steps.add(step);
      await page.waitForTimeout(100);
    }
    // Without a reload: steps went by, and their number only grew.
    assert.ok(steps.size >= 3 && figures.size >= 3, `${[...steps]} ${[...figures]}`);
    assert.deepEqual([...figures], [...figures].sort((a, b) => a - b));
    assert.match(await results.innerText(), /\d+ of 34 parts failed|All 34 parts of the test passed/);
    assert.equal(await page.locator("#found tbody tr").count(), 34);
    // The card is made of files: what a launch costs, how time is shared and who watches are not a card's.
    const failed = await page.locator("#found tbody tr", { has: page.locator(".pill.bad") }).allInnerTexts();
    assert.ok(failed.length <= 3, failed.join());
    assert.equal(await page.locator("#state .bar").count(), 0, "the bar stays");
    assert.deepEqual(await violations(page), []);
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      assert.equal(await overflow(page), 0, `${width} px`);
    }
    // On paper: what was found and the signature, and nothing that is only good for a screen.
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.reload();
    await page.emulateMedia({ media: "print" });
    for (const gone of [".frame>.nav", ".top", ".dock", "form[action$='/test']"]) {
      for (const one of await page.locator(gone).all()) assert.equal(await one.isVisible(), false, `${gone} is printed`);
    }
    for (const kept of ["h1", "#found h2", "#found tbody tr:last-child", "#found dl.kv .print"]) {
      assert.equal(await page.locator(kept).first().isVisible(), true, `${kept} is not printed`);
    }
    const pdf = await page.pdf({ format: "A4", path: process.env.FARDEL_PROOF_PDF });
    const sheets = pdf.toString("latin1").match(/\/Type\s*\/Page[^s]/g)?.length ?? 0;
    assert.equal(sheets, 1, "one sheet");
    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await own.close();
  }
});

test("GPUs are a table on demand, which sorts, filters and leaves as a file", async () => {
  const own = await open("--simulate-gpus", "H100:16");
  try {
    const context = await browser.newContext();
    const page = await context.newPage();
    const complaints = listen(page);
    await setUp(page, own);
    own.command("gpu", "cordon", "3");
    await page.goto(`${own.origin}/gpus`);
    await page.click("nav.seg >> text=Table");
    await page.waitForURL(/view=table/);
    const rows = page.locator("#list tbody tr");
    await until(() => "all of them", async () => (await rows.count()) === 16);
    assert.equal(await page.locator("#plan").isVisible(), false);
    await page.selectOption("#filter [name=state]", "closed");
    await until(() => "the closed one", async () => (await rows.count()) === 1);
    assert.match(page.url(), /state=closed$/);
    own.command("gpu", "cordon", "4");
    await until(() => "another one comes by itself", async () => (await rows.count()) === 2);
    await page.goto(`${own.origin}/gpus?view=table`);
    await page.click("thead a >> text=Allocated");
    await page.waitForURL(/sort=-share/);
    assert.match(await rows.first().innerText(), /\b0 of 80 GiB/, "memory with its unit");
    const link = await page.locator(".pager [download]").getAttribute("href");
    const file = await (await context.request.get(own.origin + link)).text();
    assert.equal(file.trim().split("\r\n").length, 17);
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      assert.equal(await overflow(page), 0, `at ${width}`);
      assert.deepEqual(await violations(page), []);
      for (const cell of ["Model", "Allocated", "Memory"]) assert.ok(await rows.first().locator(`td[data-n="${cell}"]`).isVisible(), `${cell} at ${width}`);
    }
    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await own.close();
  }
});

for (const path of PAGES) {
  test(`${path} is accessible, obeys the policy and fits, in both languages and themes`, async () => {
    const told = [];
    // Both languages at once, on two cores: each looks at pages of its own.
    const inLanguage = async (locale) => {
      for (const { colorScheme, widths } of looks(path).filter((look) => look.locale === locale)) {
        const context = await browser.newContext({ storageState: state, locale, colorScheme });
        const page = await context.newPage();
        const complaints = listen(page);
        await page.goto(house.origin + path, { waitUntil: "load" });
        for (const width of [1440, 390]) {
          await page.setViewportSize({ width, height: 900 });
          const wide = await overflow(page);
          if (wide > 0) told.push(`${locale} ${colorScheme} ${width} px: ${wide} px too wide`);
          if (!widths.includes(width)) continue;
          told.push(...(await violations(page)).map((line) => `${locale} ${colorScheme} ${width} px: ${line}`));
        }
        told.push(...complaints);
        await context.close();
      }
    };
    await Promise.all(["en-US", "ko-KR"].map(inLanguage));
    assert.deepEqual(told, []);
  });
}
