// Servers that stand where ours would without one of its checks: what an attack does to a browser that meets them is what ours
// keeps from happening. Each listens at a port of its own on the host that the attacked origin has, so that a browser sends it
// the cookies of that host. Never touches the product.

import { createServer, request } from "node:http";
import { createServer as createSecure, request as requestSecurely } from "node:https";
import { isIP } from "node:net";

/// Listens at a free port; `pem` is a key and its certificate, or nothing for a plain server.
async function listening(host, pem, answer) {
  const server = pem ? createSecure({ key: pem, cert: pem }, answer) : createServer(answer);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  // A test that fails before it closes this does not hold its file up.
  server.unref();
  const close = () => new Promise((done) => {
    server.close(done);
    server.closeAllConnections();
  });
  return { server, origin: `${pem ? "https" : "http"}://${host}:${server.address().port}`, close };
}

/// Hands each request on to an origin of ours as if a page of that very origin had sent it: what the origin is without a look
/// at who asks.
export async function withoutCheckOfAsker(origin, pem) {
  const target = new URL(origin);
  const onward = (asked) => {
    const { referer: _, ...headers } = asked.headers;
    Object.assign(headers, { host: target.host, "sec-fetch-site": "same-origin" });
    if (headers.origin) headers.origin = target.origin;
    const ask = target.protocol === "https:" ? requestSecurely : request;
    return ask({ host: "127.0.0.1", port: target.port, servername: isIP(target.hostname) ? "" : target.hostname, method: asked.method, path: asked.url, headers, agent: false });
  };
  const relay = await listening(target.hostname, pem, (asked, answer) => {
    const sent = onward(asked);
    sent.on("response", (heard) => {
      answer.writeHead(heard.statusCode, heard.headers);
      heard.pipe(answer);
    });
    sent.on("error", () => answer.destroy());
    asked.pipe(sent);
  });
  relay.server.on("upgrade", (asked, socket) => {
    const sent = onward(asked);
    const over = () => socket.destroy();
    sent.on("upgrade", (_, beyond) => {
      beyond.destroy();
      over();
    });
    sent.on("response", over);
    sent.on("error", over);
    socket.on("error", () => sent.destroy());
    sent.end();
  });
  return relay;
}

/// Answers everything with these cookies: what an app is without a look at what it sets.
export function withoutCheckOfCookies(host, pem, cookies) {
  return listening(host, pem, (_, answer) => {
    answer.writeHead(200, { "content-type": "text/html", "set-cookie": cookies });
    answer.end("<!doctype html><title>Planted</title>");
  });
}
