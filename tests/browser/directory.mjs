// A user of an identity provider signs in by the button, comes back to the page they wanted, proves there anew who they
// are before a second factor, and is refused in words while the provider is down. Their groups give roles, each sign-in
// those of then; whom an administrator removed the provider does not bring back. The provider is a whole one.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import Provider from "oidc-provider";
import { launch, overflow, violations } from "./lib/browser.mjs";
import { configure, openWith, roleOf, setUpApart } from "./lib/house.mjs";

let browser;
let house;
let folder;
let issuer;
let server;

/// What the provider says of a user's groups; of the others that they are staff.
const groups = new Map();

/// A provider that knows everybody who types a name.
function provider(issuer, origin) {
  return new Provider(issuer, {
    clients: [
      {
        client_id: "fardel",
        client_secret: "between us two",
        redirect_uris: [`${origin}/login/return`],
      },
    ],
    claims: { openid: ["sub"], profile: ["preferred_username", "name", "groups"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["of this test alone"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, name: "Kim of the provider", groups: groups.get(id) ?? ["staff"] }),
    }),
  });
}

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "fardel-provider-"));
  const secret = join(folder, "secret");
  writeFileSync(secret, "between us two\n", { mode: 0o600 });
  house = await openWith({});
  await setUpApart(browser, house);
  server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  issuer = `http://127.0.0.1:${server.address().port}`;
  server.on("request", provider(issuer, house.origin).callback());
  configure(house, [
    `oidc_issuer = "${issuer}"`,
    `oidc_client = "fardel"`,
    `oidc_secret_file = "${secret}"`,
    `oidc_origin = "${house.origin}"`,
    `oidc_name = "Lab account"`,
    `ldap_groups = "heads -> default:lead; staff -> default:member"`,
  ]);
});

after(async () => {
  await browser?.close();
  await house?.close();
  server?.closeAllConnections();
  server?.close();
  rmSync(folder, { recursive: true, force: true });
});

/// Types a name at the provider and agrees to what it asks.
async function atProvider(page, name) {
  await page.locator("input[name=login]").waitFor();
  assert.ok(page.url().startsWith(issuer), page.url());
  await page.fill("input[name=login]", name);
  await page.fill("input[name=password]", "any");
  await page.click("button[type=submit]");
  await page.waitForLoadState();
  // It asks once for each grant.
  if (page.url().startsWith(issuer)) await page.click("button[type=submit]");
  await page.waitForURL((url) => url.origin === house.origin);
}

test("a user of the provider comes back signed in, to the page that they wanted", async () => {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  // The provider's own pages ask for fonts that are not there.
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error" && message.location().url.startsWith(house.origin)) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(`thrown: ${error.message}`));
  await page.goto(`${house.origin}/sessions`);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.click("a:has-text('Sign in with Lab account')");
  await atProvider(page, "kim");
  assert.equal(new URL(page.url()).pathname, "/sessions");
  await page.goto(`${house.origin}/me/second-factor`);
  assert.deepEqual(await violations(page), []);
  assert.equal(await page.locator("#password").count(), 0, "there is no password to ask for");
  await page.click("button:has-text('Set up')");
  await page.locator("[role=alert]:has-text('has not said lately')").waitFor();
  await page.click("a:has-text('Sign in once more')");
  await atProvider(page, "kim");
  assert.equal(new URL(page.url()).pathname, "/me/second-factor");
  await page.click("button:has-text('Set up')");
  await page.locator(".qr svg").waitFor();
  assert.deepEqual(complaints.filter((one) => !one.includes("403")), []);
  await context.close();
  // The provider lives in this process: waiting for the command must not hold it.
  const tried = await promisify(execFile)(house.binary, ["config", "test"], { env: house.environment });
  assert.match(tried.stdout, /oidc {2}works/);
});

/// Signs in by the provider as kim, in a browser of their own; what came of it.
async function byProvider() {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  await page.click("a:has-text('Sign in with Lab account')");
  await atProvider(page, "kim");
  return page;
}

test("each sign-in gives the roles of the groups of then, and a removed account does not come back", async () => {
  for (const [known, role] of [
    [["staff"], "member"],
    [["heads", "staff"], "lead"],
    [[], undefined],
    [["heads"], "lead"],
  ]) {
    groups.set("kim", known);
    const page = await byProvider();
    assert.equal(new URL(page.url()).pathname, "/");
    assert.equal(roleOf(house, "kim"), role, `groups: ${known}`);
    await page.context().close();
  }
  house.command("user", "rm", "kim");
  const page = await byProvider();
  await page.locator("[role=alert]:has-text('The account that you had here was removed')").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(roleOf(house, "kim"), undefined);
  await page.goto(`${house.origin}/me`);
  assert.equal(new URL(page.url()).pathname, "/login");
  await page.context().close();
});

test("a provider that is down is said in words, and a local account signs in", async () => {
  server.closeAllConnections();
  await new Promise((done) => server.close(done));
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/login/return?state=nothing&code=nothing`);
  await page.locator("[role=alert]:has-text('was begun in another browser')").waitFor();
  assert.deepEqual(await violations(page), []);
  await page.goto(`${house.origin}/login`);
  await page.fill("#name", "mina");
  await page.fill("#password", "a long walk by the river 7");
  await page.click("button.pri");
  await page.waitForURL((url) => url.pathname === "/");
  await context.close();
});
