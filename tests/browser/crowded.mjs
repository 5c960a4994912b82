// Every page of people, their shares and the system with one user and one project, and with five hundred and a hundred:
// nothing wider than the screen, no violation of accessibility rules, in both languages, both themes, on a phone and on a
// desk. Run at night alone: it takes minutes.
//
// Proves too: `tests/browser/pages.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, listen, looks, overflow, violations } from "./lib/browser.mjs";
import { client } from "./lib/crowd.mjs";
import { open, setUp } from "./lib/house.mjs";

const USERS = 500;
const PROJECTS = 100;
const PAGES = [
  "/", "/users", "/users?q=student", "/users/import", "/users/USER", "/projects", "/projects/PROJECT", "/sessions/new",
  "/queue", "/usage", "/usage?by=project", "/usage?by=member", "/statements", "/budgets", "/reservations", "/courses",
  "/policies", "/presets", "/groups", "/fair-share", "/idle-rules", "/announcements", "/audit", "/events", "/notices", "/me",
  "/history", "/history?of=user:USER", "/allowances", "/holidays", "/sign-ups", "/storage",
  "/folders", "/nodes", "/system/checks", "/system/settings", "/system/backups", "/system/tls", "/system/support",
  "/system/branding", "/system/webhooks", "/users/USER/remove", "/projects/PROJECT/invitations", "/budgets/BUDGET",
  "/courses/COURSE", "/reservations/RESERVATION", "/groups/crowd", "/policies/crowd", "/presets/PRESET",
  "/announcements/ANNOUNCEMENT", "/idle-rules/crowd", "/sessions", "/gpus", "/images", "/environments", "/projects/new",
  "/folders/FOLDER/files", "/folders/FOLDER/sharing", "/folders/FOLDER/owner", "/users/USER/suspend",
  "/projects/PROJECT/state", "/budgets/BUDGET/remove", "/courses/COURSE/close", "/me/keys", "/me/limits", "/me/ssh-keys", "/me/startup",
  "/approvals", "/break-glass", "/users/new", "/users/import/ROSTER", "/users/import/ROSTER/suspend", "/users/USER/role", "/users/USER/password",
  "/users/USER/sign-in-link", "/users/USER/grants/revoke", "/projects/PROJECT/members/USER", "/groups/crowd/remove",
  "/policies/crowd/remove", "/policies/crowd/detach", "/presets/PRESET/remove", "/announcements/ANNOUNCEMENT/remove",
  "/idle-rules/crowd/remove", "/allowances/ALLOWANCE/end", "/reservations/RESERVATION/cancel", "/courses/COURSE/archive",
  "/courses/COURSE/remove", "/statements/close", "/me/second-factor", "/folders/FOLDER/usage", "/folders/FOLDER/snapshots",
  "/folders/FOLDER/removed", "/folders/FOLDER/removed/empty", "/folders/FOLDER/trash", "/folders/FOLDER/purge", "/folders/FOLDER/search?q=crowd",
  "/sessions/SESSION", "/sessions/SESSION/logs", "/sessions/SESSION/metrics", "/sessions/SESSION/processes",
  "/sessions/SESSION/commit", "/sessions/SESSION/apps", "/sessions/stop?id=SESSION", "/gpus/GPU", "/gpus/GPU/test",
  "/nodes/NODE",
];
/// Users of the course whose page is looked at, where there are so many.
const LEARNERS = 100;

let browser;
let house;
let state;
let cookie;
/// Ids of what has a page of its own, by the words of `PAGES`.
let things;

before(async () => {
  browser = await launch();
  house = await open("--simulate-gpus", "H100:2");
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  state = await context.storageState();
  cookie = state.cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

/// Takes a roster in, as the page does: planned, then applied as it was seen.
async function take(roster) {
  const send = async (query) => {
    const answer = await fetch(`${house.origin}/api/v1/rosters?${query}`, {
      method: "POST",
      headers: { origin: house.origin, cookie, "sec-fetch-site": "same-origin", "content-type": "text/csv" },
      body: roster,
    });
    const text = await answer.text();
    assert.ok(answer.ok, `${answer.status} ${text}`);
    return JSON.parse(text);
  };
  const plan = await send("dry_run=true");
  assert.equal(plan.faulty, 0);
  return send(`digest=${plan.digest}`);
}

/// Names of what a list of the command line has.
function names(...words) {
  const list = JSON.parse(house.command(...words, "-o", "json"));
  return (list.items ?? list).map((item) => item.name);
}

/// Makes projects and users up to these numbers; each user is in one of the projects, the first tenth of them as leads.
async function fill(users, projects) {
  const admin = client(house.origin, cookie);
  const known = names("project", "ls");
  for (let number = 1; number <= projects; number += 1) {
    const name = `project-${number}`;
    if (!known.includes(name)) await admin("/projects", { name, title: `A project with a long title, number ${number}` });
  }
  const rows = Array.from({ length: users }, (_, at) => {
    const number = at + 1;
    const role = number % 10 === 1 ? "lead" : "member";
    return `student-${number},Student With A Long Name ${number},student-${number}@school.example,project-${(at % projects) + 1},${role}`;
  });
  const before = names("user", "ls");
  const fresh = rows.filter((row) => !before.includes(row.split(",")[0]));
  const taken = await take(["name,full_name,email,project,role", ...fresh].join("\n"));
  things ??= await makeThings(admin);
  things.ROSTER = taken.id;
  const learners = Array.from({ length: Math.min(users, LEARNERS) }, (_, at) => `student-${at + 1},learners`);
  await take(["name,project", ...learners].join("\n"));
}

/// One of each kind that has a page of its own; gives their ids.
async function makeThings(admin) {
  const day = (days) => new Date(Date.now() + days * 86_400_000).toISOString();
  const title = "One with a long title, so that it wraps on a phone";
  await admin("/projects", { name: "learners", title });
  const id = async (path, body) => (await admin(path, body)).id;
  const made = {
    BUDGET: await id("/budgets", { project: "learners", gpu_hours: "900", month: day(40).slice(0, 7) }),
    COURSE: await id("/courses", { name: "crowd", title, project: "learners", from: day(-1), to: day(90) }),
    RESERVATION: await id("/reservations", {
      name: "crowd",
      project: "learners",
      resources: { gpu: 1 },
      from: day(2),
      to: day(3),
    }),
    PRESET: await id("/presets", { name: "crowd", title: title.slice(0, 33), resources: { cpu: 1 }, project: "learners" }),
    ANNOUNCEMENT: await id("/announcements", { text: `${title}. ${title}.` }),
    FOLDER: await id("/folders", { name: "crowd" }),
  };
  await admin("/resource-groups", { name: "crowd", title });
  await admin("/policies", { name: "crowd", limits: { sessions: 90, gpu: 12 } });
  await admin("/idle-rules", { name: "crowd", level: "site", below: { cpu: 0.01 } });
  const raised = { level: "project", subject: "learners", limits: { folder_bytes: 2 ** 37 }, until: day(9), reason: title };
  made.ALLOWANCE = await id("/allowances", raised);
  const launched = await admin("/sessions", {
    name: "crowd",
    kind: "batch",
    image: "host",
    command: ["sleep", "7200"],
    resources: { cpu: 0.1, memory: 64 << 20, gpu: 1 },
  });
  made.SESSION = (launched.items ?? [launched])[0].id;
  const first = (...words) => {
    const list = JSON.parse(house.command(...words, "-o", "json"));
    return (list.items ?? list)[0];
  };
  made.GPU = first("gpu", "ls").id;
  made.NODE = first("node", "ls").name;
  return made;
}

/// Looks at every page and gives what is wrong.
async function look() {
  const project = JSON.parse(house.command("project", "get", "project-1", "-o", "json")).id;
  const told = [];
  for (const path of PAGES) {
    const words = Object.entries({ PROJECT: project, USER: "student-1", ...things });
    const address = words.reduce((known, [word, id]) => known.replace(word, id), path);
    for (const { locale, colorScheme, widths } of looks(path)) {
      const context = await browser.newContext({ storageState: state, locale, colorScheme, viewport: { width: 1440, height: 900 } });
      const page = await context.newPage();
      const complaints = listen(page);
      const answer = await page.goto(`${house.origin}${address}`);
      const seen = `${path} ${locale} ${colorScheme}`;
      if (answer.status() !== 200) told.push(`${seen}: ${answer.status()}`);
      for (const width of widths) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await overflow(page);
        if (wide > 0) told.push(`${seen} ${width}: ${wide} pixels too wide`);
        for (const violation of await violations(page)) told.push(`${seen} ${width}: ${violation}`);
      }
      told.push(...complaints.map((line) => `${seen}: ${line}`));
      await context.close();
    }
  }
  return told;
}

test("one user and one project", { timeout: 1_800_000 }, async () => {
  await fill(1, 1);
  assert.deepEqual(await look(), []);
});

test("five hundred users and a hundred projects", { timeout: 3_600_000 }, async () => {
  await fill(USERS, PROJECTS);
  assert.deepEqual(await look(), []);
  // A list has them all, a page at a time; a search finds one.
  const context = await browser.newContext({ storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/users?q=student-499`);
  await page.locator("#list", { hasText: "student-499" }).waitFor();
  await page.goto(`${house.origin}/projects`);
  await page.locator("main", { hasText: "project-1" }).first().waitFor();
  await context.close();
});
