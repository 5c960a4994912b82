// A wire between a browser and a server of this machine, which a test can cut. Carries bytes and reads none of them.

import { connect, createServer } from "node:net";

/// Listens at a port of its own and carries what comes there to `port`, and back.
export async function relay(port) {
  const ends = new Set();
  let state = "whole";
  const add = (socket, other) => {
    ends.add(socket);
    // What one side leaves, the other hears of.
    socket.on("error", () => {});
    socket.on("close", () => {
      ends.delete(socket);
      other.destroy();
    });
    socket.pipe(other);
  };
  const server = createServer({ noDelay: true, highWaterMark: 1 << 20 }, (near) => {
    if (state === "cut") return near.resetAndDestroy();
    const far = connect({ port, host: "127.0.0.1", noDelay: true });
    add(near, far);
    add(far, near);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    /// Carries nothing more, and says so to neither side.
    hush() {
      for (const socket of ends) socket.unpipe().pause();
    },
    /// Resets every connection, and each one that comes.
    cut() {
      state = "cut";
      for (const socket of ends) socket.resetAndDestroy();
    },
    mend() {
      state = "whole";
    },
    close() {
      for (const socket of ends) socket.destroy();
      return new Promise((done) => server.close(done));
    },
  };
}
