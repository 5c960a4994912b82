// A user of a directory that others wrote, Debian's slapd, signs in by the form of the console with the password of the
// directory, over TLS; has the role of their group, another one once the group changed, and is refused in words once they
// left. While the directory is down or silent a local account signs in.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, overflow, violations } from "./lib/browser.mjs";
import { freePort, openWith, PERSON, setUp, until } from "./lib/house.mjs";

const SLAPD = "/usr/sbin/slapd";
const SLAPADD = "/usr/sbin/slapadd";
const OPENSSL = "/usr/bin/openssl";
const BASE = "dc=example,dc=org";
/// How much later than it should a loaded machine may show that the time is over. In all it is less than eight seconds.
const LATE_MS = 4_000;

let browser;
let house;
let folder;
let ports;
let slapd;

const missing = () => [SLAPD, SLAPADD, OPENSSL].find((program) => !existsSync(program));

/// The directory with these users, by name with their groups; the password of kim is "of kim".
function entries(users) {
  const service = `cn=fardel,${BASE}`;
  const names = Object.keys(users);
  const user = (name) => [
    `dn: uid=${name},${BASE}`,
    "objectClass: inetOrgPerson",
    // An account belongs to it: without one, each directory that is laid would have other persons.
    `entryUUID: 6f1d2c3e-0000-4000-8000-${Buffer.from(name).toString("hex").padEnd(12, "0").slice(0, 12)}`,
    `uid: ${name}`,
    `cn: ${name} of the directory`,
    `sn: ${name}`,
    `mail: ${name}@example.org`,
    `userPassword: of ${name}`,
    ...users[name].map((group) => `memberOf: cn=${group},${BASE}`),
    "",
  ];
  const group = (name) => [
    `dn: cn=${name},${BASE}`,
    "objectClass: groupOfNames",
    `cn: ${name}`,
    `member: ${service}`,
    ...names.filter((one) => users[one].includes(name)).map((one) => `member: uid=${one},${BASE}`),
    "",
  ];
  return [
    `dn: ${BASE}`,
    "objectClass: dcObject",
    "objectClass: organization",
    "dc: example",
    "o: example",
    "",
    `dn: ${service}`,
    "objectClass: organizationalRole",
    "objectClass: simpleSecurityObject",
    "cn: fardel",
    "userPassword: of the service",
    "",
    ...names.flatMap(user),
    ...["heads", "staff"].flatMap(group),
  ].join("\n");
}

async function stop() {
  if (!slapd || slapd.exitCode !== null || slapd.signalCode !== null) return;
  const ended = new Promise((done) => slapd.once("exit", done));
  slapd.kill("SIGTERM");
  await ended;
}

/// Starts slapd once more, on the same ports, with these users.
async function startWith(users) {
  await stop();
  rmSync(join(folder, "rows"), { recursive: true, force: true });
  mkdirSync(join(folder, "rows"));
  writeFileSync(join(folder, "entries.ldif"), entries(users));
  execFileSync(SLAPADD, ["-f", "slapd.conf", "-l", "entries.ldif"], { cwd: folder, stdio: "pipe" });
  const log = join(folder, "log");
  const listens = `ldap://127.0.0.1:${ports.plain}/ ldaps://127.0.0.1:${ports.encrypted}/`;
  // In front: with a level it does not fork.
  slapd = spawn(SLAPD, ["-d", "0", "-f", "slapd.conf", "-h", listens], {
    cwd: folder,
    stdio: ["ignore", "ignore", openSync(log, "a")],
  });
  const answers = () =>
    new Promise((done) => {
      const probe = connect(ports.encrypted, "127.0.0.1");
      probe.once("connect", () => probe.end(() => done(true)));
      probe.once("error", () => done(false));
    });
  await until(() => `slapd listens: ${readFileSync(log, "utf8")}`, answers);
}

before(async () => {
  if (missing()) return;
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "fardel-slapd-"));
  ports = { plain: await freePort(), encrypted: await freePort() };
  writeFileSync(
    join(folder, "slapd.conf"),
    [
      "include /etc/ldap/schema/core.schema",
      "include /etc/ldap/schema/cosine.schema",
      "include /etc/ldap/schema/inetorgperson.schema",
      "modulepath /usr/lib/ldap",
      "moduleload back_mdb",
      "moduleload memberof",
      `TLSCACertificateFile ${folder}/authority.pem`,
      `TLSCertificateFile ${folder}/authority.pem`,
      `TLSCertificateKeyFile ${folder}/key.pem`,
      "database mdb",
      `suffix "${BASE}"`,
      `directory ${folder}/rows`,
      "maxsize 16777216",
      "overlay memberof",
      "access to attrs=userPassword by anonymous auth",
      `access to * by dn.exact="cn=fardel,${BASE}" read`,
      "",
    ].join("\n"),
  );
  execFileSync(
    OPENSSL,
    [
      ["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"],
      ["-pkeyopt", "ec_paramgen_curve:prime256v1"],
      ["-subj", "/CN=slapd of a test"],
      ["-addext", "subjectAltName=IP:127.0.0.1"],
      ["-addext", "basicConstraints=critical,CA:FALSE"],
      ["-keyout", "key.pem", "-out", "authority.pem"],
    ].flat(),
    { cwd: folder, stdio: "pipe" },
  );
  const secret = join(folder, "password");
  writeFileSync(secret, "of the service\n", { mode: 0o600 });
  const file = join(folder, "fardel.toml");
  writeFileSync(
    file,
    [
      `ldap_url = "ldaps://127.0.0.1:${ports.encrypted}"`,
      `ldap_ca_file = "${folder}/authority.pem"`,
      `ldap_base = "${BASE}"`,
      `ldap_bind = "cn=fardel,${BASE}"`,
      `ldap_password_file = "${secret}"`,
      `ldap_filter = "(uid=%u)"`,
      `ldap_groups = "heads -> default:lead; staff -> default:member"`,
      "",
    ].join("\n"),
  );
  await startWith({ kim: ["staff"] });
  house = await openWith({ FARDEL_CONFIG: file });
  const context = await browser.newContext();
  await setUp(await context.newPage(), house);
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
  await stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

async function signIn(page, name, password) {
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", name);
  await page.fill("#password", password);
  await page.click("form[action='/login'] button[type=submit]");
}

/// The status of a sign-in by the local account.
async function localStatus() {
  const answer = await fetch(`${house.origin}/login`, {
    method: "POST",
    redirect: "manual",
    headers: { origin: house.origin, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ name: PERSON.name, password: PERSON.password }).toString(),
  });
  return answer.status;
}

/// Signs in as kim in a browser of their own, which comes to the overview. A loaded machine may be late once.
async function admitted() {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await until(
    () => `kim is admitted: ${page.url()}`,
    async () => {
      await signIn(page, "kim", "of kim");
      return page.waitForURL(`${house.origin}/`, { timeout: 5_000 }).then(
        () => true,
        () => false,
      );
    },
  );
  return page;
}

/// Of a user in the project `default`.
function roleOf(name) {
  const { items } = JSON.parse(house.command("project", "members", "default", "-o", "json"));
  return items.find((member) => member.user.name === name)?.role;
}

test("a user of slapd signs in by the form, and has the role of their group", async (t) => {
  if (missing()) {
    t.skip(`${missing()} is not here`);
    return;
  }
  const context = await browser.newContext({ locale: "en-US" });
  const wrong = await context.newPage();
  await signIn(wrong, "kim", "not of kim");
  await wrong.locator("[role=alert]:has-text('Wrong user name or password')").waitFor();
  assert.deepEqual(await violations(wrong), []);
  await context.close();

  const page = await admitted();
  assert.equal(roleOf("kim"), "member");
  await page.goto(`${house.origin}/me`);
  await page.locator("main", { hasText: "kim" }).first().waitFor();
  assert.equal(await overflow(page), 0);
  assert.deepEqual(await violations(page), []);
  await page.context().close();

  // The group is another one, and so is the role at the next sign-in; without any there is none.
  await startWith({ kim: ["staff", "heads"] });
  await (await admitted()).context().close();
  assert.equal(roleOf("kim"), "lead");
  await startWith({ kim: [] });
  await (await admitted()).context().close();
  assert.equal(roleOf("kim"), undefined);
});

test("who left slapd is refused in words, and while it is down a local account signs in", async (t) => {
  if (missing()) {
    t.skip(`${missing()} is not here`);
    return;
  }
  await startWith({ lee: ["staff"] });
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await signIn(page, "kim", "of kim");
  await page.locator("[role=alert]:has-text('Wrong user name or password')").waitFor();

  await stop();
  await signIn(page, "lee", "of lee");
  await page.locator("[role=alert]:has-text('The directory does not answer')").waitFor();
  assert.deepEqual(await violations(page), []);

  // In its place one that takes connections and says nothing: who signs in by it has an answer after two seconds, and a
  // local account need not wait for that. A loaded machine may be late twice.
  const silent = createServer((socket) => socket.on("error", () => {}).resume());
  await new Promise((done) => silent.listen(ports.encrypted, "127.0.0.1", done));
  let cameFirst = false;
  for (let time = 0; time < 3 && !cameFirst; time += 1) {
    let waits = true;
    const asked = new Promise((done) => silent.once("connection", () => done(Date.now())));
    const refused = signIn(page, "lee", "of lee")
      .then(() => page.locator("[role=alert]:has-text('The directory does not answer')").waitFor())
      .then(() => {
        waits = false;
        return Date.now();
      });
    const begun = await Promise.race([asked, refused.then(() => assert.fail("the directory was not asked"))]);
    assert.equal(await localStatus(), 303);
    cameFirst = waits;
    const took = (await refused) - begun;
    assert.ok(took >= 500, `it was not silent: ${took} ms`);
    assert.ok(took < 2_000 + LATE_MS, `${took} ms`);
  }
  assert.ok(cameFirst, "the local account waited for the directory");
  silent.close();

  await signIn(page, PERSON.name, PERSON.password);
  await page.waitForURL(`${house.origin}/`);
  await context.close();
});
