// A real server of its own for one test file: own state, own runtime directory, own port. Ends it and
// removes everything afterwards; never touches another server on this machine.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { closeSync, fsyncSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The suite keeps every processor busy: what takes a second on a free machine may take some.
const TIMEOUT_MS = 40_000;

/// The administrator whom `setUp` makes.
export const PERSON = { name: "mina", password: "a long walk by the river 7" };

/// A port of this machine that is free now.
export function freePort() {
  return new Promise((done, fail) => {
    const probe = createServer();
    probe.on("error", fail);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

/// Waits until `ask` answers something true; fails with `what` when it does not in time.
export async function until(what, ask) {
  const end = Date.now() + TIMEOUT_MS;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    assert.ok(Date.now() < end, `in vain: ${what()}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/// Starts `fardel serve` with these options and waits for its first 200.
export function open(...options) {
  return openWith({}, ...options);
}

/// The same with these variables besides.
export async function openWith(variables, ...options) {
  const binary = process.env.FARDEL_BINARY;
  assert.ok(binary, "FARDEL_BINARY names the binary");
  const folder = mkdtempSync(join(tmpdir(), "fardel-browser-"));
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const environment = {
    ...process.env,
    // Never the machine's own.
    FARDEL_CONFIG: join(folder, "fardel.toml"),
    // Only where a test says so: a home on a machine that holds limits is a file system of its own.
    FARDEL_HOMES: "false",
    // A quarter of the disk for each test would be set aside where the kernel can.
    FARDEL_POOL_SIZE: "none",
    // Nor has each session a file system of its own.
    FARDEL_SESSION_DISK: "none",
    ...variables,
    FARDEL_DATA: join(folder, "data"),
    FARDEL_RUN: join(folder, "run"),
    FARDEL_LISTEN: `127.0.0.1:${port}`,
  };
  let said = "";
  let child;
  let ended;
  const begin = (program) => {
    child = spawn(program, ["serve", ...options], { env: environment, stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.on("data", (bytes) => (said += bytes));
    child.stderr.on("data", (bytes) => (said += bytes));
    ended = new Promise((done) => child.on("exit", done));
  };
  const serves = () => until(
    () => `200 from ${origin}/healthz; the server says: ${said}`,
    async () => {
      assert.equal(child.exitCode, null, `the server ended: ${said}`);
      return fetch(`${origin}/healthz`).then(
        (answer) => answer.ok,
        () => false,
      );
    },
  );
  begin(binary);
  const house = {
    origin,
    environment,
    binary,
    said: () => said,
    /// Ends the server alone, by this signal: its sessions live on.
    async leave(signal = "SIGTERM") {
      child.kill(signal);
      await ended;
    },
    /// Starts a server of this program on the same state, and waits for its first 200.
    async enter(program = binary) {
      begin(program);
      await serves();
    },
    /// The one-time link as the server printed it.
    setupLink: () =>
      until(
        () => `a setup link in: ${said}`,
        async () => said.match(/https?:\/\/\S*\/setup\S*/)?.[0],
      ),
    /// What the command line says; the server's own socket, so no sign-in.
    command: (...words) => execFileSync(binary, words, { env: environment, encoding: "utf8", timeout: TIMEOUT_MS }),
    /// Ends every session and the server, waits, removes its folder.
    async close() {
      try {
        const names = () => house.command("ps", "-o", "name").split("\n").filter(Boolean);
        const left = names();
        // Sessions outlive their server by design; nobody would end these later.
        if (left.length > 0) house.command("session", "kill", ...left);
        await until(() => `the sessions end: ${names()}`, async () => names().length === 0);
      } catch (error) {
        console.error(`sessions stay behind: ${error.message}`);
      }
      await house.leave();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  try {
    await serves();
  } catch (error) {
    await house.close();
    throw error;
  }
  return house;
}

/// Goes through the setup page, leaves the rest of the installation, and arrives signed in on the overview.
export async function setUp(page, house) {
  await page.goto(await house.setupLink());
  await page.fill("#name", PERSON.name);
  await page.fill("#password", PERSON.password);
  await page.fill("#again", PERSON.password);
  await Promise.all([
    page.waitForURL(`${house.origin}/setup/time`),
    page.click("form[action='/setup'] button[type=submit]"),
  ]);
  // The rest of the installation can be left and taken up again.
  await page.goto(`${house.origin}/`);
}

/// The same in a browser of its own, which is closed again.
export async function setUpApart(browser, house) {
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  await context.close();
}

/// Has the house read these lines as its settings.
export function configure(house, lines) {
  writeFileSync(house.environment.FARDEL_CONFIG, [...lines, ""].join("\n"));
  house.command("config", "reload");
}

/// The role of a user in the project `default`. The command asks no provider, which may live in this process.
export function roleOf(house, name) {
  const { items } = JSON.parse(house.command("project", "members", "default", "-o", "json"));
  return items.find((member) => member.user.name === name)?.role;
}

/// Signs in through the login page.
export async function signIn(page, house) {
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", PERSON.name);
  await page.fill("#password", PERSON.password);
  await Promise.all([
    page.waitForURL(`${house.origin}/`),
    page.click("form[action='/login'] button[type=submit]"),
  ]);
}

/// Adds a user in the page of an administrator.
export async function addUser(page, house, { name, password }) {
  await page.goto(`${house.origin}/users/new`);
  await page.fill("#name", name);
  await page.fill("#password", password);
  await page.fill("#again", password);
  await Promise.all([page.waitForURL(/notice=user-added/), page.keyboard.press("Enter")]);
}

/// Makes a folder on the page of folders and opens it: gives the address of its files, and where sessions see them.
export async function addFolder(page, house, name) {
  await page.goto(`${house.origin}/folders`);
  await page.fill("#name", name);
  await page.click("form[action='/folders'] button");
  await page.locator("a.nm", { hasText: name }).click();
  await page.locator("h1", { hasText: name }).waitFor();
  const place = page.url().split("?")[0];
  const id = new URL(place).pathname.split("/")[2];
  return { place, mounted: join(house.environment.FARDEL_DATA, "folders", id.slice(-2), id, "data") };
}

/// A page of a browser of their own in which that user is signed in.
export async function signedInAs(browser, house, { name, password }) {
  const page = await (await browser.newContext({ locale: "en-US" })).newPage();
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", name);
  await page.fill("#password", password);
  await Promise.all([
    page.waitForURL((url) => url.pathname !== "/login"),
    page.click("form[action='/login'] button[type=submit]"),
  ]);
  return page;
}

/// Writes a file as a session does, until nothing more fits.
export function fillUp(path) {
  const file = openSync(path, "w");
  for (const size of [1 << 20, 1 << 16, 1 << 12]) {
    try {
      for (const bytes = Buffer.alloc(size, 7); ; ) writeSync(file, bytes);
    } catch (error) {
      assert.equal(error.code, "ENOSPC");
    }
  }
  fsyncSync(file);
  closeSync(file);
}
