// A server that throws away what a browser sends to it: as fast as that, a browser of this machine sends. Keeps no byte.

import { createServer } from "node:net";

const PAGE = '<!doctype html><html lang="en"><title>Sink</title><input type="file" id="files">';
const answer = (head, body = "") => `HTTP/1.1 ${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;

/// Listens at a port of its own; a page of it has a field for files.
export async function sink() {
  const server = createServer((socket) => {
    let head = "";
    let left = 0;
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      if (left > 0) left -= bytes.length;
      else {
        head += bytes.toString("latin1");
        const end = head.indexOf("\r\n\r\n");
        if (end < 0) return;
        left = Number(head.match(/^content-length: *(\d+)/im)?.[1] ?? 0) - (head.length - end - 4);
        if (head.startsWith("GET")) socket.end(answer("200 OK\r\nContent-Type: text/html", PAGE));
      }
      if (left <= 0 && !head.startsWith("GET")) socket.end(answer("204 No Content"));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((done) => server.close(done)),
  };
}

/// Has a browser send the first `bytes` of a file there; gives seconds.
export async function swallowed(browser, path, bytes) {
  const { origin, close } = await sink();
  const page = await browser.newPage();
  await page.goto(origin);
  await page.setInputFiles("#files", path);
  const took = await page.evaluate((bytes) => new Promise((done, fail) => {
    const from = performance.now();
    const request = new XMLHttpRequest();
    request.open("POST", "/");
    request.onload = () => done((performance.now() - from) / 1000);
    request.onerror = () => fail(new Error("the sink is gone"));
    request.send(document.querySelector("#files").files[0].slice(0, bytes));
  }), bytes);
  await page.close();
  await close();
  return took;
}
