// The floor plan with one, fifty and many more sessions: what is free keeps its true width, nothing leaves the
// frame, and every session is reached from the list beneath. Measured in the browser, as it is drawn.

import assert from "node:assert/strict";
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
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// Boxes of every bar on the page, in pixels: the frame's inside, the blocks, and the padding of each.
const bars = (page) => page.evaluate(() => [...document.querySelectorAll("main .fp .rack, #where .rack")].map((rack) => {
  const frame = rack.getBoundingClientRect();
  const inside = { left: frame.left + rack.clientLeft, width: rack.clientWidth };
  const blocks = [...rack.children].map((block) => {
    const box = block.getBoundingClientRect();
    const style = getComputedStyle(block);
    return {
      free: block.classList.contains("free"),
      mine: block.classList.contains("me"),
      left: box.left - inside.left,
      width: box.width,
      padding: parseFloat(style.paddingLeft) + parseFloat(style.paddingRight),
      percent: Number([...block.classList].find((name) => name.startsWith("w-")).slice(2)) + Number([...block.classList].find((name) => name.startsWith("t-"))?.slice(2) ?? 0) / 10,
    };
  });
  return { name: rack.parentElement.querySelector(".id b")?.textContent ?? "", width: inside.width, blocks };
}));

function exact(all) {
  assert.ok(all.length > 0, "no bar");
  for (const bar of all) {
    const sum = bar.blocks.reduce((sum, block) => sum + block.percent, 0);
    assert.ok(Math.abs(sum - 100) < 0.01, `${bar.name}: the widths sum to ${sum}%`);
    let at = 0;
    for (const block of bar.blocks) {
      assert.ok(Math.abs(block.left - at) < 1.5, `${bar.name}: a block begins at ${block.left} instead of ${at}`);
      at = block.left + block.width;
      const wanted = (bar.width * block.percent) / 100;
      assert.ok(Math.abs(block.width - wanted) <= 4, `${bar.name}: ${block.width} instead of ${wanted} px`);
      if (block.width < 12) assert.equal(block.padding, 0, `${bar.name}: a block of ${block.width} px has padding`);
    }
    assert.ok(at <= bar.width + 1.5, `${bar.name}: ${at - bar.width} px outside of its frame`);
  }
}

/// Words on the plan that are cut off: each has to end in an ellipsis, and to stand in full in the title of its block.
const clipped = (page) => page.evaluate(() => [...document.querySelectorAll("main .fp .sl")].flatMap((block) => {
  const words = [...block.querySelectorAll(":scope > b, :scope > span:not(.sr, .u)")];
  const cut = words.filter((part) => part.scrollWidth > part.clientWidth + 1 || block.scrollWidth > block.clientWidth + 1);
  return cut.map((part) => ({
    text: part.textContent,
    ends: getComputedStyle(part).textOverflow,
    title: block.title,
  }));
}));

async function fill(count) {
  const owned = () => house.command("ps", "-o", "name").split("\n").filter(Boolean);
  const missing = count - owned().length;
  if (missing > 0) house.command("run", "-d", "--kind", "interactive", "--cpu", "0.01", "--mem", "16m", "--replicas", String(missing), "host");
  const holding = () => JSON.parse(house.command("api", "GET", "/overview")).holding;
  // Fifty starts take longer than one page, on a loaded machine.
  const end = Date.now() + 60_000;
  while (holding() < count) {
    assert.ok(Date.now() < end, `${holding()} of ${count} sessions hold room`);
    await new Promise((done) => setTimeout(done, 250));
  }
}

for (const count of [1, 50]) {
  test(`${count} sessions are drawn exactly, and what is free keeps its width`, async (t) => {
    if (process.getuid() !== 0) {
      t.skip("sessions need root");
      return;
    }
    await fill(count);
    for (const width of [1440, 390]) {
      const context = await browser.newContext({ storageState: state, viewport: { width, height: 900 } });
      const page = await context.newPage();
      const complaints = listen(page);
      await page.goto(`${house.origin}/`, { waitUntil: "load" });
      exact(await bars(page));
      // The bar and the words beside it say the same of what is free.
      const cpu = (await bars(page)).find((bar) => bar.name === "CPU");
      const words = await page.locator("#plan .gpu", { hasText: "CPU" }).locator(".mx").innerText();
      const [, left] = words.match(/([\d.]+)[^\d]* free/) ?? [];
      const [, whole] = words.match(/of ([\d.]+)/) ?? [];
      const free = cpu.blocks.find((block) => block.free);
      assert.ok(Math.abs(free.width / cpu.width - left / whole) < 0.02, `${free.width} of ${cpu.width} px for ${words}`);
      await page.locator("#planned summary").click();
      await until(() => "every session is in the list", async () => (await page.locator("#rows a.nm").count()) >= Math.min(count, 40));
      for (const { text, ends, title } of await clipped(page)) {
        assert.equal(ends, "ellipsis", `${text} is cut off without a sign`);
        assert.ok(title.includes(text), `${text} stands nowhere in full: ${title}`);
      }
      assert.equal(await overflow(page), 0);
      assert.deepEqual(await violations(page), []);
      assert.deepEqual(complaints, []);
      await context.close();
    }
  });
}

test("no caption of the overview is cut at any width", async () => {
  const told = [];
  for (const locale of ["en-US", "ko-KR"]) {
    const context = await browser.newContext({ storageState: state, locale });
    const page = await context.newPage();
    await page.goto(`${house.origin}/`, { waitUntil: "load" });
    for (const width of [1600, 1440, 1361, 1280, 1181, 1100, 981, 900, 820, 761, 700, 560, 480, 390, 360]) {
      await page.setViewportSize({ width, height: 900 });
      const cut = await page.evaluate(() => [...document.querySelectorAll("#kpis dt, #kpis .v, #kpis .note, #plan .id *, #plan .mx b, #plan .mx span, .plots figcaption *")]
        .filter((part) => part.clientWidth > 0 && part.scrollWidth > part.clientWidth + 1)
        .map((part) => part.textContent));
      const wide = await page.evaluate(() => [...document.querySelectorAll("#kpis .kpi > *, #plan .gpu > *")].flatMap((part) => {
        const [inner, outer] = [part.getBoundingClientRect(), part.parentElement.getBoundingClientRect()];
        return inner.right > outer.right + 1 ? [part.textContent.trim()] : [];
      }));
      told.push(...[...cut, ...wide].map((words) => `${locale} ${width}: ${words}`));
    }
    await context.close();
  }
  assert.deepEqual(told, []);
});

test("each bar of the overview has its last minutes, memory is used and cores are busy, and what is simulated is said once", async () => {
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/`, { waitUntil: "load" });
  const named = (name) => page.locator("#plan .gpu", { has: page.locator(".id b", { hasText: new RegExp(`^${name}$`) }) }).locator(".mx");
  for (const [name, word] of [["GPU 0", ""], ["GPU 1", ""], ["CPU", "busy"], ["Memory", "used"]]) {
    assert.equal(await named(name).count(), 1, name);
    assert.equal(await named(name).locator("svg").count(), 1, `${name} has no last minutes`);
    assert.ok((await named(name).innerText()).includes(word), `${name}: ${await named(name).innerText()}`);
  }
  assert.doesNotMatch(await named("Memory").innerText(), /busy/);
  const words = await page.locator("main").innerText();
  assert.equal(words.match(/simulated/gi)?.length, 1, words);
  assert.equal(await page.locator("main a[href='/events']").count(), 1);
  // On a phone what needs attention stands above the plan; a new box has no backup yet.
  assert.ok((await page.locator("#attention li").count()) > 0);
  await page.setViewportSize({ width: 390, height: 844 });
  const top = async (part) => (await page.locator(part).boundingBox()).y;
  assert.ok((await top("#attention")) < (await top("#plan")));
  await page.setViewportSize({ width: 1440, height: 900 });
  // A point is kept every ten seconds.
  await until(() => "what is allocated and busy as a chart", async () => {
    await page.reload({ waitUntil: "load" });
    return (await page.locator("section[aria-labelledby=hi] figure").count()) > 0;
  });
  await context.close();
});

test("a small session is seen on its own page among fifty", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  await page.goto(`${house.origin}/`, { waitUntil: "load" });
  await page.locator("#planned summary").click();
  await page.locator("#rows a.nm").first().click();
  await page.locator("#where .sl.me").first().waitFor();
  const all = await bars(page);
  exact(all);
  for (const bar of all) {
    const own = bar.blocks.find((block) => block.mine);
    assert.ok(own.width >= 4, `its slice is ${own.width} px wide`);
    assert.ok(own.left + own.width <= bar.width + 1, "its slice is cut off");
  }
  await context.close();
});

test("a plain user is told how many sessions hold what is given", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  const password = "another long walk at night 8";
  house.command("api", "POST", "/users", JSON.stringify({ name: "jae", password }));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", "jae");
  await page.fill("#password", password);
  await page.click("form[action='/login'] button[type=submit]");
  await page.waitForURL(`${house.origin}/`);
  assert.match(await page.locator(".kpi", { hasText: "CPU" }).first().innerText(), /by 50 sessions/);
  // Others' sessions are one block, without names or links.
  const cpu = (await bars(page)).find((bar) => bar.name === "CPU");
  assert.equal(cpu.blocks.length, 2);
  exact([cpu]);
  assert.equal(await page.locator("#rows a.nm").count(), 0);
  // So they are on the page of a GPU, in one row.
  house.command("run", "-d", "--kind", "interactive", "--cpu", "0.01", "--mem", "16m", "--gpu", "0.1", "--replicas", "3", "host");
  const taken = await until(() => "three sessions have a share", async () => {
    const all = JSON.parse(house.command("api", "GET", "/gpus")).items;
    return all.find((gpu) => gpu.slices.length === 3);
  });
  await page.goto(`${house.origin}/gpus/${taken.id}`);
  assert.equal(await page.locator("#slices tbody tr").count(), 1);
  assert.match(await page.innerText("#slices tbody tr"), /others\s+0\.30\s.*3 sessions/s);
  await context.close();
});

test("no size on the pages of a GPU is a few bytes, and no number stands beside its whole without a unit", async (t) => {
  if (process.getuid() !== 0) {
    t.skip("sessions need root");
    return;
  }
  // Shares whose memory is no round number, beside those of the test before.
  house.command("run", "-d", "--kind", "interactive", "--cpu", "0.01", "--mem", "16m", "--gpu", "0.33", "--replicas", "2", "host");
  const taken = await until(() => "they have their shares", async () => {
    const all = JSON.parse(house.command("api", "GET", "/gpus")).items;
    return all.find((gpu) => gpu.slices.some((slice) => slice.share === 0.33));
  });
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  for (const path of ["/", "/gpus", `/gpus/${taken.id}`]) {
    await page.goto(house.origin + path, { waitUntil: "load" });
    const words = await page.locator("main").innerText();
    assert.doesNotMatch(words, /(^|\s)[1-9]\d* B(\s|$)/m, path);
    assert.doesNotMatch(words, /(^|\s)[\d.]+ \/ [\d.]+(\s|$)/m, path);
  }
  await context.close();
});
