// The forms of certificates on a server with TLS, with wrong values: each refusal stands at its field, what was typed
// stays, the focus is there; in Korean, and without script.
//
// Proves too: `tests/browser/forms.mjs`

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, violations } from "./lib/browser.mjs";
import { openWith, setUp } from "./lib/house.mjs";

// The box's own authority is known to nobody yet.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";

let browser;
let house;
let state;
const secure = { ignoreHTTPSErrors: true };

before(async () => {
  browser = await launch();
  house = await openWith({ FARDEL_TLS: "on" });
  house.origin = house.origin.replace("http:", "https:");
  const context = await browser.newContext(secure);
  const page = await context.newPage();
  await setUp(page, house);
  state = await context.storageState();
  await context.close();
});

after(async () => {
  await browser?.close();
  await house?.close();
});

const REQUEST = "/system/tls/request";
const IMPORT = "/system/tls/certificate";
const NOT_PEM = "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----";

// Form, field that is told, what is typed into which field.
const WRONG = [
  [REQUEST, "names", { names: "no_such name!" }],
  [REQUEST, "names", { names: Array.from({ length: 60 }, (_, n) => `h${n}.example`).join("\n") }],
  [IMPORT, "certificate", { certificate: "" }],
  [IMPORT, "certificate", { certificate: "hello" }],
  [IMPORT, "certificate", { certificate: NOT_PEM }],
];

for (const [locale, script] of [["en-US", true], ["ko-KR", true], ["ko-KR", false]]) {
  test(`a wrong value of a certificate's form stands at its field, ${locale}, ${script ? "with" : "without"} script`, async () => {
    const context = await browser.newContext({ ...secure, storageState: state, locale, javaScriptEnabled: script });
    const page = await context.newPage();
    for (const [action, field, typed] of WRONG) {
      await page.goto(`${house.origin}/system/tls`);
      for (const [name, value] of Object.entries(typed)) await page.fill(`form[action='${action}'] [name=${name}]`, value);
      await Promise.all([page.waitForEvent("framenavigated"), page.click(`form[action='${action}'] button.btn`)]);
      await page.waitForLoadState("load");
      const control = page.locator(`form[action='${action}'] [name=${field}]`);
      const what = `${action} ${JSON.stringify(typed).slice(0, 60)}`;
      assert.equal(await control.getAttribute("aria-invalid"), "true", what);
      const value = typed[field] ?? "";
      assert.equal((await control.inputValue()).replaceAll("\r", ""), value, what);
      assert.equal(await page.locator(`form[action='${action}'] [name=${field}]:focus`).count(), 1, `${what}: the focus`);
      const note = page.locator(`#fault-${field}`).first();
      assert.match(await note.innerText(), locale === "ko-KR" ? /[가-힣]/ : /[a-z]{3}/, what);
      assert.ok((await note.boundingBox()).height > 0, what);
      if (script) assert.deepEqual(await violations(page), [], what);
    }
    await context.close();
  });
}

test("a certificate without its key, and a file that is none, are told at their fields", async () => {
  const context = await browser.newContext({ ...secure, storageState: state, locale: "en-US" });
  const page = await context.newPage();
  await page.goto(`${house.origin}/system/tls`);
  const own = await context.request.get(`${house.origin}/trust/fardel.pem`);
  await page.fill(`form[action='${IMPORT}'] [name=certificate]`, await own.text());
  await Promise.all([page.waitForEvent("framenavigated"), page.click(`form[action='${IMPORT}'] button.btn`)]);
  await page.waitForLoadState("load");
  const marked = page.locator(`form[action='${IMPORT}'] [aria-invalid=true]`);
  assert.equal(await marked.count(), 1);
  assert.match(await page.inputValue(`form[action='${IMPORT}'] [name=certificate]`), /BEGIN CERTIFICATE/, "it stays");
  await page.setInputFiles("#certificate-file", { name: "cert.pem", mimeType: "text/plain", buffer: Buffer.from("no pem") });
  await page.setInputFiles("#key-file", { name: "key.pem", mimeType: "text/plain", buffer: Buffer.from("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n") });
  await Promise.all([page.waitForEvent("framenavigated"), page.click(`form[action='${IMPORT}'] button.btn`)]);
  await page.waitForLoadState("load");
  assert.equal(await marked.count(), 1);
  assert.doesNotMatch(await page.content(), /PRIVATE KEY-----\s*AAAA/, "a key is never sent back");
  await context.close();
});
