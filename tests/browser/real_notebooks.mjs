// Forty notebooks, each with a kernel of a JupyterLab of its own as its makers ship it, while the server is killed, and while
// another program takes its place, as an upgrade of the package does. No session ends, and each kernel answers again with the
// value that it had, at the address that its page has open, with no page of the console between. One of them is open in a
// browser, where it is used again without being loaded again. Installs nothing: `cargo ci apps` does.
//
// `FARDEL_NEXT_BINARY` names the program that takes over; without it a copy of the same one does.
//
// Proves too: `packaging/tasks/src/vm/notebooks.py`

import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { launch } from "./lib/browser.mjs";
import { client, cookieOf, firstUser } from "./lib/crowd.mjs";
import { freePort, openWith } from "./lib/house.mjs";
import { Jupyter } from "./lib/jupyter.mjs";

// Below `/usr`, which a session on the machine's own programs sees.
const FOLDER = join(process.env.FARDEL_REAL_APPS ?? "", "jupyter");
const COUNT = Number(process.env.FARDEL_NOTEBOOKS ?? 40);
// One user has a quarter of the hundred ports of apps.
const USERS = ["mina", "jae"];
const PASSWORD = "a long walk by the river 7";
// What each may take; a JupyterLab with one kernel takes less than half of it.
const MEMORY = 448 << 20;
// So many start at once: a JupyterLab has two minutes until it listens, and takes seconds of a processor for that.
const AT_ONCE = 4;
const STARTS_MS = 180_000;
// How long what was open may take until it answers again.
const BACK_MS = 120_000;
const SLOW_MS = 60_000;

const root = process.getuid() === 0;
const files = mkdtempSync(join(tmpdir(), "fardel-notebooks-"));
let browser;
let house;

before(async () => {
  if (!root || !process.env.FARDEL_REAL_APPS) return;
  copyFileSync(process.env.FARDEL_NEXT_BINARY ?? process.env.FARDEL_BINARY, join(files, "next"));
  browser = await launch({ webgl: false });
  // They share the machine's processors: each is one of those that start, and rests then.
  house = await openWith({ FARDEL_LISTEN_APPS: `127.0.0.1:${await freePort()}`, FARDEL_CPU: String(COUNT) });
});

after(async () => {
  await browser?.close();
  await house?.close();
  rmSync(files, { recursive: true, force: true });
});

/// Tries until it answers something true; fails with what came last.
async function soon(what, limit, attempt) {
  let last;
  for (const end = Date.now() + limit; Date.now() < end; await wait(100)) {
    try {
      last = await attempt();
      if (last) return last;
    } catch (error) {
      last = error;
    }
  }
  throw new Error(`${what}, in vain: ${last instanceof Error ? last.message : JSON.stringify(last)}`);
}

/// Does something with each, so many at once.
async function each(all, atOnce, does) {
  const rest = [...all.entries()];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let one = rest.shift(); one; one = rest.shift()) await does(one[1], one[0]);
  }));
}

/// The running sessions, each with what says that it is the same life of it.
function lives() {
  const rows = JSON.parse(house.command("ps", "-o", "json"));
  const running = (rows.items ?? rows).filter((row) => row.state === "running");
  return Object.fromEntries(running.map((row) => [row.id, `${row.incarnation} ${row.started_at}`]));
}

/// Launches the sessions of both users; gives each with its user's client and cookie.
async function launched() {
  const admin = await firstUser(house.origin, await house.setupLink());
  await client(house.origin, admin)("/users", { name: USERS[1], password: PASSWORD });
  const cookies = [admin, await cookieOf(house.origin, USERS[1])];
  const all = [];
  for (const [at, cookie] of cookies.entries()) {
    const asks = client(house.origin, cookie);
    const replicas = at === 0 ? Math.ceil(COUNT / 2) : Math.floor(COUNT / 2);
    const made = await asks("/sessions", {
      name: `notebook-${at}`, kind: "batch", image: "host", replicas, command: ["sleep", "infinity"],
      env: { PATH: `${join(FOLDER, "bin")}:/usr/bin:/bin` },
      resources: { cpu: 1, memory: MEMORY, shm: 1 << 20 },
    });
    for (const { id } of made.items ?? [made]) all.push({ id, asks, cookie });
  }
  await soon(`${COUNT} sessions run`, SLOW_MS, () => Object.keys(lives()).length === COUNT);
  return all;
}

/// Opens the JupyterLab of a session, which starts it, and gives where it is entered.
const entry = ({ id, asks }) => soon("a JupyterLab listens", STARTS_MS, async () => (await asks(`/sessions/${id}/apps/jupyter/open`, {})).entry);

/// One of them in a real browser, with a notebook of its own.
async function shown(one) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const [name, ...value] = one.cookie.split("=");
  await context.addCookies([{ name, value: value.join("="), domain: "127.0.0.1", path: "/" }]);
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions`);
  const way = await entry(one);
  await page.evaluate((way) => location.assign(way), way);
  await page.locator(".jp-LauncherCard[data-category=Notebook]").first().click({ timeout: SLOW_MS });
  await page.locator("#jp-main-statusbar", { hasText: "| Idle" }).waitFor({ timeout: SLOW_MS });
  return page;
}

/// Types a cell into the notebook of the page, and waits for what it prints.
async function typed(page, code, prints) {
  await page.locator(".jp-Notebook .jp-CodeCell").last().locator(".cm-content").click({ timeout: SLOW_MS });
  await page.keyboard.type(code);
  await page.keyboard.press("Shift+Enter");
  await page.locator(".jp-OutputArea-output", { hasText: prints }).first().waitFor({ timeout: SLOW_MS });
}

/// Memory of all processes of the JupyterLabs and their kernels, in MiB: what each shares with others is divided among them.
function memory() {
  let kib = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(FOLDER)) continue;
      kib += Number(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8").match(/^Pss: +(\d+)/m)[1]);
    } catch {
      // It has ended meanwhile.
    }
  }
  return kib / 1024;
}

test(`${COUNT} kernels of JupyterLab outlive a server that is killed and one that another program follows`, { timeout: 3_600_000 }, async (t) => {
  if (!root) return t.skip("sessions need root");
  if (!existsSync(join(FOLDER, "bin/jupyter-lab"))) return t.skip("JupyterLab is not installed");
  const seconds = (from) => `${((performance.now() - from) / 1000).toFixed(1)} s`;
  let from = performance.now();
  const all = await launched();
  await each(all, AT_ONCE, async (one, number) => {
    one.lab = new Jupyter(one.cookie);
    await one.lab.enter(await entry(one));
    await one.lab.notebook(`notebook-${number}.ipynb`);
    await one.lab.dial();
    await one.lab.run(`import os\nkept = "value ${number} of " + str(os.getpid())`);
    one.printed = await one.lab.run("print(kept)");
    assert.match(one.printed, new RegExp(`^value ${number} of \\d+\n$`));
    if (number === 0) console.log(`the first JupyterLab with a kernel: ${memory().toFixed(0)} MiB after ${seconds(from)}`);
  });
  const page = await shown(all[0]);
  // What the page heard on sockets to its kernel that it opened since.
  let heard = 0;
  page.on("websocket", (socket) => {
    if (/\/api\/kernels\/[^/]+\/channels/.test(socket.url())) socket.on("framereceived", () => (heard += 1));
  });
  await typed(page, 'kept = 6 * 7; print("seen", kept)', "seen 42");
  console.log(`${COUNT} notebooks and one in a browser are open after ${seconds(from)}; they take ${memory().toFixed(0)} MiB`);
  const before = lives();
  assert.equal(Object.keys(before).length, COUNT);

  const ends = [
    ["the server is killed", "SIGKILL", process.env.FARDEL_BINARY],
    ["another program follows", "SIGTERM", join(files, "next")],
  ];
  for (const [number, [what, signal, program]] of ends.entries()) {
    const lost = all.map(({ lab }) => lab.line.ended);
    await house.leave(signal);
    await Promise.all(lost);
    heard = 0;
    from = performance.now();
    await house.enter(program);
    const serves = seconds(from);
    await each(all, COUNT, async (one) => {
      await soon("a kernel has a socket again", BACK_MS, () => one.lab.dial().then(() => true));
      assert.equal(await one.lab.run("print(kept)"), one.printed);
    });
    const answers = seconds(from);
    // The page dials again by itself: at once, and where that is refused after ten to thirty seconds.
    await soon("the page hears its kernel again", BACK_MS, () => heard > 0);
    await typed(page, `print("seen", kept + ${number + 1})`, `seen ${43 + number}`);
    assert.deepEqual(lives(), before, "none ended, and none was started again");
    console.log(`${what}: the next one serves after ${serves}, ${COUNT} kernels answer after ${answers}, the page after ${seconds(from)}; 0 ended`);
  }
});
