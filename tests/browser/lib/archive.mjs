// Images as `docker save` writes them, made on the spot: one of random bytes, so that sending it takes several pieces, and one
// of programs of this machine, which a session can run. Never a whole system.

import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

/// Writes `folder/image.tar` holding `name`, or several names of one image, with about `bytes` in its layer; gives its path.
export function image(folder, name, bytes) {
  const root = join(folder, "root");
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, "data"), randomBytes(bytes));
  return packed(folder, name);
}

/// The same of programs of this machine, each with the libraries that it is linked to.
export function system(folder, name, programs) {
  const root = join(folder, "root");
  const lay = (path) => {
    const at = join(root, path);
    if (existsSync(at)) return;
    mkdirSync(dirname(at), { recursive: true });
    copyFileSync(path, at);
  };
  for (const program of programs) {
    lay(program);
    const linked = execFileSync("ldd", [program], { encoding: "utf8" });
    for (const [, library] of linked.matchAll(/(\/[^\s()]+) \(0x/g)) lay(library);
  }
  return packed(folder, name, programs[0]);
}

/// Writes `folder/image.tar` of what lies in `folder/root`; of the same files the layer is the same each time.
export function packed(folder, name, program = "/data") {
  const tree = join(folder, "tree");
  const root = join(folder, "root");
  mkdirSync(tree, { recursive: true });
  execFileSync("tar", ["-C", root, "--sort=name", "-cf", join(tree, "layer.tar"), ...readdirSync(root)]);
  const layer = digest(readFileSync(join(tree, "layer.tar")));
  const config = JSON.stringify({
    architecture: "amd64",
    os: "linux",
    config: { Cmd: [program] },
    rootfs: { type: "layers", diff_ids: [`sha256:${layer}`] },
  });
  const configName = `${digest(config)}.json`;
  writeFileSync(join(tree, configName), config);
  writeFileSync(join(tree, "manifest.json"), JSON.stringify([{ Config: configName, RepoTags: [name].flat(), Layers: ["layer.tar"] }]));
  const archive = join(folder, "image.tar");
  execFileSync("tar", ["-C", tree, "-cf", archive, "layer.tar", configName, "manifest.json"]);
  return archive;
}
