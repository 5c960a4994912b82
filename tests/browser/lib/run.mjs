// Runs test files in the order of its arguments, so many of them at once, and prints how long the longest took: `node
// run.mjs AT_ONCE FILE…`. Node's own command line sorts the files by name, and then the longest may be the last. Fails
// when a test fails, and when nothing passed.

import { basename, resolve } from "node:path";
import { run } from "node:test";
import { dot } from "node:test/reporters";

const SLOWEST = 10;

/// Milliseconds after which a file hangs, and fails by its name. At night each page is looked at in every pair of language
/// and theme, and the tests of crowded pages have an hour and a half.
const HANGS = (process.env.FARDEL_PAIRS === "half" ? 20 : 100) * 60 * 1000;

const [atOnce, ...files] = process.argv.slice(2);
let passed = 0;
let failed = 0;
/// What tests printed: figures, and what they left out.
const printed = [];
/// Seconds and name of each file that ended.
const took = [];

const tests = run({ files: files.map((file) => resolve(file)), concurrency: Number(atOnce), timeout: HANGS });
tests.on("data", ({ type, data }) => {
  if (type === "test:pass") passed += 1;
  if (type === "test:fail" && data.todo === undefined) failed += 1;
  if (type === "test:stdout") printed.push(data.message);
  // A file is a test of its own, around those in it.
  if (type === "test:complete" && data.name === data.file) took.push([data.details.duration_ms / 1000, basename(data.file)]);
});
tests.compose(dot).pipe(process.stdout);
tests.on("end", () => {
  took.sort(([one], [other]) => other - one);
  process.on("exit", () => {
    console.log(`\n${printed.join("")}`);
    console.log(`slowest files of ${files.length}, ${atOnce} at once: wall s`);
    for (const [seconds, file] of took.slice(0, SLOWEST)) console.log(`${seconds.toFixed(1).padStart(8)}  ${file}`);
  });
  if (failed > 0 || passed === 0) process.exitCode = 1;
});
