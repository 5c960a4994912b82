// A user of a SAML provider on another site signs in by the button, comes back by a post without our cookie to the page
// they wanted, and proves there once more who they are before a second factor; a changed or repeated response is refused
// in words. The provider is a small one, written here, which lies; a whole one of others is in `samlify.mjs`.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, createPrivateKey, sign } from "node:crypto";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { inflateRawSync } from "node:zlib";
import { launch, overflow, violations } from "./lib/browser.mjs";
import { configure, openWith, setUpApart } from "./lib/house.mjs";

/// The key of the certificate beside the tests of the verifier, of tests alone.
const KEY = createPrivateKey({
  key: Buffer.from(
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgQwJheWRkZO9iblMd9Jcwij8UUsjKXpp9uLT7wTsGRpehRANCAASK2BwOjbKYL/evSf8dTd7oH6PI/GaOmUnRdPo1eNgPuzrW/O7ydbSmI+q5IfBDaQt+G/u7W9Plt4gTJA2/s6ji",
    "base64",
  ),
  format: "der",
  type: "pkcs8",
});
const CERTIFICATE = new URL("../../src/server/access/saml/response/ecdsa.crt", import.meta.url);
const SAML = "urn:oasis:names:tc:SAML:2.0";
const DSIG = "http://www.w3.org/2000/09/xmldsig#";
const EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#";

let browser;
let house;
let folder;
let issuer;
let server;
/// The last response that was made.
let last;
/// What becomes of a response before it is sent.
let change = (text) => text;

/// A response to a request, in canonical form as it is written.
function response(request) {
  const of = (name) => request.match(new RegExp(` ${name}="([^"]*)"`))[1];
  const at = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();
  const place = of("AssertionConsumerServiceURL");
  const audience = request.match(/<saml:Issuer>([^<]*)</)[1];
  const begin = `<saml:Assertion xmlns:saml="${SAML}:assertion" ID="_a" IssueInstant="${at(0)}" Version="2.0">`;
  const attribute = (name, value) =>
    `<saml:Attribute Name="${name}"><saml:AttributeValue>${value}</saml:AttributeValue></saml:Attribute>`;
  const rest = [
    `<saml:Issuer>${issuer}</saml:Issuer>`,
    `<saml:Subject><saml:NameID Format="${SAML}:nameid-format:persistent">id of kim</saml:NameID>`,
    `<saml:SubjectConfirmation Method="${SAML}:cm:bearer"><saml:SubjectConfirmationData InResponseTo="${of("ID")}" NotOnOrAfter="${at(300)}" Recipient="${place}"></saml:SubjectConfirmationData></saml:SubjectConfirmation></saml:Subject>`,
    `<saml:Conditions NotBefore="${at(-60)}" NotOnOrAfter="${at(300)}"><saml:AudienceRestriction><saml:Audience>${audience}</saml:Audience></saml:AudienceRestriction></saml:Conditions>`,
    `<saml:AuthnStatement AuthnInstant="${at(0)}"></saml:AuthnStatement>`,
    `<saml:AttributeStatement>${attribute("uid", "kim")}${attribute("displayName", "Kim of SAML")}${attribute("groups", "staff")}</saml:AttributeStatement>`,
    "</saml:Assertion>",
  ].join("");
  const digest = createHash("sha256").update(begin + rest).digest("base64");
  const empty = (name, algorithm) => `<ds:${name} Algorithm="${algorithm}"></ds:${name}>`;
  const information = [
    empty("CanonicalizationMethod", EXCLUSIVE),
    empty("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256"),
    `<ds:Reference URI="#_a"><ds:Transforms>${empty("Transform", `${DSIG}enveloped-signature`)}${empty("Transform", EXCLUSIVE)}</ds:Transforms>`,
    `${empty("DigestMethod", "http://www.w3.org/2001/04/xmlenc#sha256")}<ds:DigestValue>${digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>`,
  ].join("");
  const signed = Buffer.from(`<ds:SignedInfo xmlns:ds="${DSIG}">${information}`);
  const value = sign("sha256", signed, { key: KEY, dsaEncoding: "ieee-p1363" }).toString("base64");
  const signature = `<ds:Signature xmlns:ds="${DSIG}"><ds:SignedInfo>${information}<ds:SignatureValue>${value}</ds:SignatureValue></ds:Signature>`;
  const status = `<samlp:Status><samlp:StatusCode Value="${SAML}:status:Success"/></samlp:Status>`;
  return {
    place,
    text: `<samlp:Response xmlns:samlp="${SAML}:protocol" ID="_r" Version="2.0" InResponseTo="${of("ID")}" Destination="${place}">${status}${begin}${signature}${rest}</samlp:Response>`,
  };
}

function answer(request, to) {
  const asked = new URL(request.url, issuer).searchParams.get("SAMLRequest");
  if (!asked) {
    to.writeHead(404).end();
    return;
  }
  const message = inflateRawSync(Buffer.from(asked, "base64")).toString();
  const made = response(message);
  last = { ...made, text: change(made.text) };
  const value = Buffer.from(last.text).toString("base64");
  to.writeHead(200, { "content-type": "text/html" });
  to.end(
    `<!doctype html><html lang="en"><title>Provider</title><form method="post" action="${last.place}"><input type="hidden" name="SAMLResponse" value="${value}"><button>I am kim</button></form>`,
  );
}

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "fardel-saml-"));
  const certificate = join(folder, "saml.pem");
  copyFileSync(CERTIFICATE, certificate);
  house = await openWith({});
  await setUpApart(browser, house);
  server = createServer(answer);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  // Another name than the house's: browsers take it for another site.
  issuer = `http://localhost:${server.address().port}`;
  configure(house, [
    `saml_issuer = "${issuer}"`,
    `saml_sso_url = "${issuer}/sso"`,
    `saml_certificate_file = "${certificate}"`,
    `saml_origin = "${house.origin}"`,
    `saml_name = "Lab account"`,
    `ldap_groups = "staff -> default:member"`,
  ]);
});

after(async () => {
  await browser?.close();
  await house?.close();
  server?.closeAllConnections();
  server?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function atProvider(page) {
  await page.locator("button:has-text('I am kim')").waitFor();
  assert.ok(page.url().startsWith(issuer), page.url());
  await page.click("button");
  await page.waitForURL((url) => url.origin === house.origin);
}

test("a user of a SAML provider comes back signed in, to the page that they wanted", async () => {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/sessions`);
  assert.deepEqual(await violations(page), []);
  assert.equal(await overflow(page), 0);
  await page.click("a:has-text('Sign in with Lab account')");
  await atProvider(page);
  assert.equal(new URL(page.url()).pathname, "/sessions");
  await page.goto(`${house.origin}/me/second-factor`);
  assert.equal(await page.locator("#password").count(), 0, "there is no password to ask for");
  await page.click("a:has-text('Sign in once more')");
  await atProvider(page);
  assert.equal(new URL(page.url()).pathname, "/me/second-factor");
  await page.click("button:has-text('Set up')");
  await page.locator(".qr svg").waitFor();
  await context.close();
  const tried = execFileSync(house.binary, ["config", "test"], { env: house.environment });
  assert.match(tried.toString(), /saml {2}works/);
});

test("a response that was changed, or comes twice, is refused in words", async () => {
  const context = await browser.newContext({ locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/login`);
  change = (text) => text.replace(">kim<", ">mina<");
  await page.click("a:has-text('Sign in with Lab account')");
  await atProvider(page);
  await page.locator("[role=alert]:has-text('is not to be believed')").waitFor();
  assert.deepEqual(await violations(page), []);
  change = (text) => text;
  await page.click("a:has-text('Sign in with Lab account')");
  await atProvider(page);
  assert.equal(new URL(page.url()).pathname, "/");
  const body = new URLSearchParams({ SAMLResponse: Buffer.from(last.text).toString("base64") });
  const again = await fetch(last.place, { method: "POST", body, redirect: "manual" });
  assert.equal(again.status, 403);
  assert.match(await again.text(), /This sign-in is over/);
  await context.close();
});
