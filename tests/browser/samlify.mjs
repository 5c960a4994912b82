// A SAML provider that others wrote, samlify, reads our metadata and our request and signs by a key of its own: a user of it
// signs in by the button, each sign-in gives the roles of the groups of then, whom an administrator removed it does not
// bring back, and another key than the one of the settings is not believed.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import samlify from "samlify";
import { launch, violations } from "./lib/browser.mjs";
import { configure, openWith, roleOf, setUpApart } from "./lib/house.mjs";

const { Constants, IdentityProvider, SamlLib, ServiceProvider, setSchemaValidator } = samlify;
const OPENSSL = "/usr/bin/openssl";
const TEXT = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic";

let browser;
let house;
let folder;
let issuer;
let server;
/// What the provider says of kim's groups.
let groups = ["staff"];
/// Whose key signs: of the settings, or another one.
let signer = "provider";
/// What kim's persistent name is.
let nameId = "id of kim";

const pem = (name) => readFileSync(join(folder, name), "utf8");

/// The provider, whose answers have so many groups.
function provider() {
  const attribute = (name, valueTag) => ({ name, valueTag, nameFormat: TEXT, valueXsiType: "xs:string" });
  const proven = '<saml:AuthnStatement AuthnInstant="{IssueInstant}"></saml:AuthnStatement>';
  return IdentityProvider({
    entityID: issuer,
    privateKey: pem(`${signer}.key`),
    signingCert: pem(`${signer}.pem`),
    nameIDFormat: ["urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"],
    singleSignOnService: [{ Binding: Constants.namespace.binding.redirect, Location: `${issuer}/sso` }],
    loginResponseTemplate: {
      context: SamlLib.defaultLoginResponseTemplate.context.replace("{AuthnStatement}", proven),
      attributes: [attribute("uid", "uid"), attribute("displayName", "name"), ...groups.map((_, at) => attribute("groups", `group${at}`))],
    },
  });
}

/// A form that posts what the provider says of kim to where our metadata say.
async function answer(request, to) {
  const asked = new URL(request.url, issuer);
  if (!asked.searchParams.has("SAMLRequest")) {
    to.writeHead(404).end();
    return;
  }
  const metadata = await fetch(`${house.origin}/login/saml/metadata`);
  const site = ServiceProvider({ metadata: await metadata.text() });
  const idp = provider();
  const { extract } = await idp.parseLoginRequest(site, "redirect", { query: Object.fromEntries(asked.searchParams) });
  const place = site.entityMeta.getAssertionConsumerService("post");
  const at = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();
  const said = {
    ID: "_r", AssertionID: "_a", Destination: place, Audience: site.entityMeta.getEntityID(), SubjectRecipient: place,
    Issuer: issuer, IssueInstant: at(0), StatusCode: Constants.StatusCode.Success, ConditionsNotBefore: at(-60),
    ConditionsNotOnOrAfter: at(300), SubjectConfirmationDataNotOnOrAfter: at(300), InResponseTo: extract.request.id,
    NameIDFormat: "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent", NameID: nameId, attrUid: "kim",
    attrName: "Kim of samlify", ...Object.fromEntries(groups.map((group, at) => [`attrGroup${at}`, group])),
  };
  const { context } = await idp.createLoginResponse(site, { extract }, "post", {}, {
    customTagReplacement: (template) => ({ id: said.ID, context: SamlLib.replaceTagsByValue(template, said) }),
  });
  to.writeHead(200, { "content-type": "text/html" });
  to.end(
    `<!doctype html><html lang="en"><title>Provider</title><form method="post" action="${place}"><input type="hidden" name="SAMLResponse" value="${context}"><button>I am kim</button></form>`,
  );
}

before(async () => {
  if (!existsSync(OPENSSL)) return;
  browser = await launch();
  // The schema of SAML is checked by nothing that runs without a foreign program.
  setSchemaValidator({ validate: async () => "not looked at" });
  folder = mkdtempSync(join(tmpdir(), "fardel-samlify-"));
  for (const name of ["provider", "another"]) {
    execFileSync(
      OPENSSL,
      [
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=samlify of a test"],
        ["-keyout", `${name}.key`, "-out", `${name}.pem`],
      ].flat(),
      { cwd: folder, stdio: "pipe" },
    );
  }
  house = await openWith({});
  await setUpApart(browser, house);
  server = createServer((request, to) => {
    answer(request, to).catch((error) => to.writeHead(500).end(String(error.stack)));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  // Another name than the house's: browsers take it for another site.
  issuer = `http://localhost:${server.address().port}`;
  configure(house, [
    `saml_issuer = "${issuer}"`,
    `saml_sso_url = "${issuer}/sso"`,
    `saml_certificate_file = "${folder}/provider.pem"`,
    `saml_origin = "${house.origin}"`,
    `saml_name = "Lab account"`,
    `ldap_groups = "heads -> default:lead; staff -> default:member"`,
  ]);
});

after(async () => {
  await browser?.close();
  await house?.close();
  server?.closeAllConnections();
  server?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/// Signs in by the provider, in a browser of its own; what came of it.
async function byProvider() {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  await page.click("a:has-text('Sign in with Lab account')");
  await page.locator("button:has-text('I am kim')").waitFor();
  assert.ok(page.url().startsWith(issuer), page.url());
  await page.click("button");
  await page.waitForURL((url) => url.origin === house.origin);
  return page;
}

test("each sign-in by samlify gives the roles of the groups of then", async (t) => {
  if (!existsSync(OPENSSL)) {
    t.skip(`${OPENSSL} is not here`);
    return;
  }
  for (const [known, role] of [
    [["staff"], "member"],
    [["heads", "staff"], "lead"],
    [[], undefined],
    [["heads"], "lead"],
  ]) {
    groups = known;
    const page = await byProvider();
    assert.equal(new URL(page.url()).pathname, "/");
    assert.equal(roleOf(house, "kim"), role, String(known));
    await page.context().close();
  }
});

test("another key is not believed, and a removed account does not come back", async (t) => {
  if (!existsSync(OPENSSL)) {
    t.skip(`${OPENSSL} is not here`);
    return;
  }
  groups = ["staff"];
  signer = "another";
  let page = await byProvider();
  await page.locator("[role=alert]:has-text('is not to be believed')").waitFor();
  assert.deepEqual(await violations(page), []);
  assert.equal(roleOf(house, "kim"), "lead", "it changes nothing");
  await page.context().close();

  signer = "provider";
  house.command("user", "rm", "kim");
  page = await byProvider();
  await page.locator("[role=alert]:has-text('The account that you had here was removed')").waitFor();
  assert.equal(new URL(page.url()).pathname.startsWith("/login"), true, page.url());
  assert.deepEqual(await violations(page), []);
  await page.context().close();
  assert.equal(roleOf(house, "kim"), undefined);
  // Another entry of the provider by that name is another user.
  nameId = "id of another kim";
  page = await byProvider();
  assert.equal(new URL(page.url()).pathname, "/");
  assert.equal(roleOf(house, "kim"), "member");
  await page.context().close();
});
