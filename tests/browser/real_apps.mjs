// Apps as their makers ship them, each started by its description in the built-in list and opened through the proxy in a
// real browser: opened, typed into, seen, left alone for a minute, used again, loaded again; at ports and at names. One is a
// desktop in an environment of ours. Changes nothing of an app, and installs none: `cargo ci apps` does, and says where they
// lie.
//
// What they keep open stays over a minute without use, and from the click to the page of a JupyterLab that listens it takes
// at most two seconds.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { launch } from "./lib/browser.mjs";
import { freePort, openWith, setUp, until } from "./lib/house.mjs";

// Below `/usr`, which a session on the machine's own programs sees: a folder with `bin`, or with a bundle, for each app.
const FOLDER = process.env.FARDEL_REAL_APPS ?? "";
const REST_MS = Number(process.env.FARDEL_APP_REST_MS ?? 60_000);
// From the click on a JupyterLab that listens to its page. Others have work of their own before they answer, and are told.
const PAGE_MS = 2_000;
// What an app still does for its first page, on the one core of its session, is done after this.
const SETTLE_MS = 5_000;
// An app of this size takes some seconds on a busy machine, the first time most.
const SLOW_MS = 60_000;
// What descriptions give an app until it answers, and the page that then leads on.
const START_MS = 125_000;
// An environment of a gigabyte comes in.
const IMPORT_MS = 300_000;
// The panel's letters and buttons have edges in more colours than these; where no panel came there is one.
const DRAWN_COLOURS = 32;
// Where the panel of a desktop has the button of its terminal, and what it takes of the height, with its clock.
const TERMINAL = { left: 20, bottom: 18 };
const PANEL = 40;
// A picture that stays so long is whole.
const STILL_MS = 1_500;
// A folder for pictures of each step.
const PICTURES = process.env.FARDEL_PICTURES;

// The box's own authority is known to no client yet.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

const root = process.getuid() === 0;

let browser;
let house;
let context;

const STREAMLIT = `
import streamlit
word = streamlit.text_input("Word")
streamlit.write("seen", word.upper())
`;

// One that wants to know when its visitors leave holds a stream open for each.
const GRADIO = `
import gradio
with gradio.Blocks() as page:
    word = gradio.Textbox(label="Word")
    answer = gradio.Textbox(label="Answer")
    gradio.Button("Submit").click(lambda word: "seen " + word.upper(), word, answer)
    page.unload(lambda: None)
page.launch()
`;

const SCALARS = `
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
word = sys.argv[1]
writer = EventFileWriter(word)
for step in range(9):
    value = Summary.Value(tag=f"{word}/loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
`;

const RUN = `
import sys
import mlflow
mlflow.set_tracking_uri("http://127.0.0.1:5000")
mlflow.set_experiment(sys.argv[1])
with mlflow.start_run(run_name="run-" + sys.argv[1]):
    mlflow.log_metric("loss", 0.5)
`;

/// What a desktop shows: how many colours its panel has, and a sum over each pixel above it; undefined before its first
/// picture. The picture itself is read, not what the page says of itself.
const drawn = (page) => page.evaluate((panel) => {
  const canvas = document.querySelector(".noVNC_connected #noVNC_container canvas");
  if (!canvas?.width || !canvas.height) return undefined;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  const above = canvas.width * (canvas.height - panel);
  let windows = 7;
  for (let at = 0; at < above; at += 1) windows = (Math.imul(windows, 31) + pixels[at]) >>> 0;
  return { colours: new Set(pixels.subarray(above)).size, windows };
}, PANEL);

/// Waits until a desktop shows another picture than this one, which then stays: a window comes in steps, and takes letters
/// after the last of them.
function redrawn(page, before) {
  let last = before.windows;
  let since = Date.now();
  return until(() => "another picture of the desktop", async () => {
    const now = await drawn(page);
    if (now?.windows !== last) {
      last = now?.windows;
      since = Date.now();
    }
    return now && last !== before.windows && Date.now() - since > STILL_MS && now;
  });
}

/// What is asked of each: `file` is laid in its session as `app.py`; `shows` waits until the page can be
/// used, `uses` types a word and waits for what comes of it. `keeps`: a socket or a stream of its page
/// stays open; the others ask again each time. `within`: its page comes so soon. `image`: it is in an
/// environment, and `program` is its bundle.
const APPS = [
  {
    name: "jupyter",
    title: "JupyterLab",
    program: "jupyter-lab",
    keeps: true,
    within: PAGE_MS,
    shows: (page) => page.locator(".jp-Launcher, .jp-Notebook").first().waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      if ((await page.locator(".jp-Notebook").count()) === 0) {
        await page.locator(".jp-LauncherCard[data-category=Notebook]").first().click();
      }
      // What is run before there is a kernel is lost.
      await page.locator("#jp-main-statusbar", { hasText: "| Idle" }).waitFor({ timeout: SLOW_MS });
      const cell = page.locator(".jp-Notebook .jp-CodeCell").last();
      await cell.locator(".cm-content").click({ timeout: SLOW_MS });
      await page.keyboard.type(`print("seen", "${word}".upper())`);
      await page.keyboard.press("Shift+Enter");
      await page.locator(".jp-OutputArea-output", { hasText: `seen ${word.toUpperCase()}` }).first().waitFor({ timeout: SLOW_MS });
    },
  },
  {
    name: "code",
    title: "code-server",
    program: "code-server",
    keeps: true,
    shows: (page) => page.locator(".monaco-workbench .part.statusbar").waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      if ((await page.locator(".terminal-wrapper.active .xterm").count()) === 0) {
        await page.keyboard.press("Control+Backquote");
      }
      const terminal = page.locator(".terminal-wrapper.active .xterm");
      await terminal.click({ timeout: SLOW_MS });
      await page.keyboard.type(`echo seen $(echo ${word} | tr a-z A-Z)\n`);
      await page.locator(".xterm-rows", { hasText: `seen ${word.toUpperCase()}` }).first().waitFor({ timeout: SLOW_MS });
    },
  },
  {
    name: "tensorboard",
    title: "TensorBoard",
    program: "tensorboard",
    keeps: false,
    shows: (page) => page.locator(".reload-button").waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      // A scalar that was not there before; it looks for new files every few seconds.
      house.command("exec", "tensorboard", "--", "python3", "-c", SCALARS, word);
      const filter = page.locator("input[placeholder^='Filter tags']");
      await until(() => `a chart of ${word}`, async () => {
        await page.locator(".reload-button").click();
        if ((await filter.count()) > 0) await filter.fill(word);
        return (await page.locator("card-view", { hasText: `${word}/loss` }).count()) > 0;
      });
    },
  },
  {
    name: "streamlit",
    title: "Streamlit",
    program: "streamlit",
    file: STREAMLIT,
    keeps: true,
    shows: (page) => page.getByLabel("Word").waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      await page.getByLabel("Word").fill(word);
      await page.keyboard.press("Enter");
      await page.getByText(`seen ${word.toUpperCase()}`).waitFor({ timeout: SLOW_MS });
    },
  },
  {
    name: "gradio",
    title: "Gradio",
    program: "gradio",
    file: GRADIO,
    keeps: true,
    shows: (page) => page.getByLabel("Word").waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      await page.getByLabel("Word").fill(word);
      await page.getByRole("button", { name: "Submit" }).click();
      const answer = page.getByLabel("Answer");
      await until(() => `an answer to ${word}`, async () => (await answer.inputValue()) === `seen ${word.toUpperCase()}`);
    },
  },
  {
    name: "mlflow",
    title: "MLflow",
    program: "mlflow",
    keeps: false,
    shows: (page) => page.locator("#root").waitFor({ timeout: SLOW_MS }),
    async uses(page, word) {
      await page.goto(new URL("/#/experiments", page.url()).href);
      await page.getByRole("button", { name: "Create", exact: true }).click();
      await page.getByPlaceholder("Input an experiment name").fill(word);
      await page.getByRole("button", { name: "Create", exact: true }).last().click();
      await page.waitForURL(/experiments\/\d+/, { timeout: SLOW_MS });
      const [experiment] = page.url().match(/experiments\/\d+/);
      house.command("exec", "mlflow", "--", "python3", "-c", RUN, word);
      await page.goto(new URL(`/#/${experiment}/runs`, page.url()).href);
      await page.getByText(`run-${word}`, { exact: true }).first().waitFor({ timeout: SLOW_MS });
    },
  },
  {
    name: "desktop",
    title: "Desktop (VNC)",
    program: "desktop.tar",
    image: "desktop:1.0",
    keeps: true,
    shows: (page) => until(() => "a picture of the desktop", async () => ((await drawn(page))?.colours ?? 0) > DRAWN_COLOURS),
    async uses(page, word) {
      // A new terminal comes to the front, and what is typed goes into it.
      const bare = await drawn(page);
      await page.mouse.click(TERMINAL.left, page.viewportSize().height - TERMINAL.bottom);
      // Else the button's own hint would be another picture.
      await page.mouse.move(TERMINAL.left, TERMINAL.bottom);
      const opened = await redrawn(page, bare);
      await page.keyboard.type(`echo seen $(echo ${word} | tr a-z A-Z) >/tmp/seen; cat /tmp/seen\n`);
      await redrawn(page, opened);
      const seen = () => house.command("exec", "desktop", "--", "sh", "-c", "cat /tmp/seen 2>/dev/null || true");
      await until(() => `the desktop says ${word}: ${seen()}`, async () => seen() === `seen ${word.toUpperCase()}\n`);
    },
  },
];

/// Where a server has its apps: at ports of its address, as on a box without a name, or at names of their own.
const PLACES = [
  { name: "at a port", variables: async () => ({ FARDEL_LISTEN_APPS: `127.0.0.1:${await freePort()}` }) },
  { name: "at an encrypted port", variables: async () => ({ FARDEL_LISTEN_APPS: `127.0.0.1:${await freePort()}`, FARDEL_TLS: "on" }) },
  { name: "at an encrypted name", variables: async () => ({ FARDEL_APPS_NAME: "apps.localhost", FARDEL_TLS: "on" }) },
];

/// Starts a server with its apps at such a place, and signs its administrator in.
async function settle(place) {
  const variables = await place.variables();
  house = await openWith(variables);
  const host = variables.FARDEL_APPS_NAME ? "localhost" : "127.0.0.1";
  const scheme = variables.FARDEL_TLS ? "https" : "http";
  const called = (address) => address.replace(/^https?:\/\/[^:/]+/, `${scheme}://${host}`);
  const link = await house.setupLink();
  house.setupLink = async () => called(link);
  house.origin = called(house.origin);
  context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true });
  await setUp(await context.newPage(), house);
}

const session = (name) => JSON.parse(house.command("session", "get", name, "-o", "json"));

/// The program of one app, or the bundle of the environment that has it.
const brought = (app) => join(FOLDER, app.name, app.image ? "" : "bin", app.program);

/// Starts a session that has the programs of one app.
async function start(app) {
  const begin = (...words) => house.command("run", "-d", "--cpu", "1", "--mem", "3g", "--name", app.name, ...words);
  if (app.image) {
    const words = ["environment", "import", "--accept-unsigned", brought(app)];
    execFileSync(house.binary, words, { env: house.environment, timeout: IMPORT_MS });
    begin(app.image, "--", "sleep", "infinity");
  } else {
    const path = `${join(FOLDER, app.name, "bin")}:/usr/bin:/bin`;
    const lays = `printf '%s' "$1" > app.py; exec sleep infinity`;
    begin("-e", `PATH=${path}`, "host", "--", "sh", "-c", lays, "sh", app.file ?? "");
  }
  await until(() => `${app.name} runs or ends`, async () => ["running", "ended"].includes(session(app.name).state));
  assert.equal(session(app.name).state, "running");
}

/// Clicks on an app's button in the list of its session; gives its tab and how long it took to the app's page.
async function opened(app) {
  const list = await context.newPage();
  await list.goto(`${house.origin}/sessions/${session(app.name).id}/apps`);
  const tab = context.waitForEvent("page");
  const from = performance.now();
  await list.getByRole("button", { name: app.title }).click();
  const page = await tab;
  const lines = watch(page);
  // The page of an app that starts looks again by itself, until it leads on.
  const isApp = (url) => url.protocol.startsWith("http") && url.origin !== house.origin && !url.pathname.startsWith("/.fardel/");
  let arrived;
  try {
    await page.waitForURL(isApp, { timeout: START_MS, waitUntil: "commit" });
    arrived = performance.now() - from;
    await app.shows(page);
  } catch (error) {
    await picture(page, app, "failed");
    throw error;
  }
  const shown = performance.now() - from;
  await list.close();
  return { page, lines, arrived, shown };
}

/// The sockets and streams of events that a page opens from now on, with what came and went, and whether they ended.
function watch(page) {
  const all = [];
  page.on("websocket", (socket) => {
    const known = { url: socket.url(), isStream: false, sent: 0, received: 0, ended: false };
    all.push(known);
    socket.on("framesent", () => (known.sent += 1));
    socket.on("framereceived", () => (known.received += 1));
    socket.on("close", () => (known.ended = true));
    socket.on("socketerror", () => (known.ended = true));
  });
  page.on("response", async (response) => {
    if (!response.headers()["content-type"]?.startsWith("text/event-stream")) return;
    const known = { url: response.url(), isStream: true, sent: 0, received: 0, ended: false };
    all.push(known);
    await response.finished().catch(() => {});
    known.ended = true;
  });
  return all;
}

const picture = async (page, app, what) => PICTURES && page.screenshot({ path: join(PICTURES, `${app.name}-${what}.png`) });
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

/// Opens an app that does not run yet, and once more now that it listens; uses it before and after a rest, and loaded again.
async function tried(app) {
  const first = await opened(app);
  await picture(first.page, app, "first");
  await new Promise((done) => setTimeout(done, SETTLE_MS));
  await first.page.close();
  const { page, lines, arrived, shown } = await opened(app);
  try {
    await app.uses(page, "one");
    await picture(page, app, "one");
    const rested = lines.filter((line) => !line.ended);
    const sockets = rested.filter((line) => !line.isStream);
    console.log(
      `${app.title}: started and in use after ${seconds(first.shown)}; from the click to the page ${seconds(arrived)}, in use ` +
        `${seconds(shown)}; ${sockets.length} sockets and ${rested.length - sockets.length} streams rest`,
    );
    assert.equal(rested.length > 0, app.keeps, "it keeps a socket or a stream open, or none");
    const carried = sockets.map(({ sent, received }) => ({ sent, received }));
    await new Promise((done) => setTimeout(done, REST_MS));
    assert.deepEqual(rested.filter((line) => line.ended), [], "none ended while it rested");
    const known = lines.length;
    await app.uses(page, "two");
    await picture(page, app, "two");
    if (sockets.length > 0) {
      const used = sockets.filter((line, at) => line.sent > carried[at].sent && line.received > carried[at].received);
      assert.ok(used.length > 0, `used by a socket from before the rest: ${JSON.stringify(sockets)}`);
      assert.equal(lines.length, known, "no socket had to be opened again");
    }
    await page.reload();
    await app.shows(page);
    await app.uses(page, "three");
    await picture(page, app, "three");
    assert.ok(arrived <= (app.within ?? Infinity), `from the click to the page: ${seconds(arrived)}`);
  } catch (error) {
    await picture(page, app, "failed");
    throw error;
  }
  await page.close();
}

before(async () => {
  if (root && FOLDER) browser = await launch({ webgl: false });
  if (PICTURES) mkdirSync(PICTURES, { recursive: true });
});

after(() => browser?.close());

for (const place of PLACES) {
  describe(`an app ${place.name}`, () => {
    before(() => browser && settle(place));

    after(async () => {
      await context?.close();
      await house?.close();
    });

    for (const app of APPS) {
      test(`${app.title} is opened, typed into, seen, used after a rest and loaded again`, async (t) => {
        if (!root) return t.skip("sessions need root");
        if (!FOLDER) return t.skip("FARDEL_REAL_APPS names no folder with apps");
        if (!existsSync(brought(app))) return t.skip(`${app.title} is not installed`);
        await start(app);
        try {
          await tried(app);
        } finally {
          house.command("session", "kill", app.name);
          await until(() => `${app.name} ends`, async () => session(app.name).state === "ended");
        }
      });
    }
  });
}
