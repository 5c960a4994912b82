// Runs test files in the order of its arguments, so many of them at once, and prints how long the longest took: `node
// run.mjs AT_ONCE FILE…`. Node's own command line sorts the files by name, and then the longest may be the last. Fails
// when a test fails, and when nothing passed.

import { basename, resolve } from "node:path";
import { run } from "node:test";
import { dot } from "node:test/reporters";

const SLOWEST = 10;

const [atOnce, ...files] = process.argv.slice(2);
let passed = 0;
let failed = 0;
/// When each file was first and last heard of; it is enqueued before it begins.
const heard = new Map();

const tests = run({ files: files.map((file) => resolve(file)), concurrency: Number(atOnce) });
tests.on("data", ({ type, data }) => {
  if (type === "test:pass") passed += 1;
  if (type === "test:fail" && data.todo === undefined) failed += 1;
  if (type === "test:enqueue" || !data.file) return;
  const now = performance.now();
  heard.set(data.file, { from: heard.get(data.file)?.from ?? now, to: now });
});
tests.compose(dot).pipe(process.stdout);
tests.on("end", () => {
  const took = [...heard].map(([file, { from, to }]) => [(to - from) / 1000, basename(file)]);
  took.sort(([one], [other]) => other - one);
  process.on("exit", () => {
    console.log(`\nslowest files of ${files.length}, ${atOnce} at once: wall s`);
    for (const [seconds, file] of took.slice(0, SLOWEST)) console.log(`${seconds.toFixed(1).padStart(8)}  ${file}`);
  });
  if (failed > 0 || passed === 0) process.exitCode = 1;
});
