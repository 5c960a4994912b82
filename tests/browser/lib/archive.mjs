// One image as `docker save` writes it, made on the spot: a single layer of random bytes, so that
// sending it takes several pieces. Never a real system.

import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

/// Writes `folder/image.tar` holding `name`, or several names of one image, with about `bytes` in its layer; gives its path.
export function image(folder, name, bytes) {
  const tree = join(folder, "tree");
  const root = join(folder, "root");
  mkdirSync(tree, { recursive: true });
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, "data"), randomBytes(bytes));
  execFileSync("tar", ["-C", root, "-cf", join(tree, "layer.tar"), "data"]);
  const layer = digest(readFileSync(join(tree, "layer.tar")));
  const config = JSON.stringify({
    architecture: "amd64",
    os: "linux",
    config: { Cmd: ["/data"] },
    rootfs: { type: "layers", diff_ids: [`sha256:${layer}`] },
  });
  const configName = `${digest(config)}.json`;
  writeFileSync(join(tree, configName), config);
  writeFileSync(join(tree, "manifest.json"), JSON.stringify([{ Config: configName, RepoTags: [name].flat(), Layers: ["layer.tar"] }]));
  const archive = join(folder, "image.tar");
  execFileSync("tar", ["-C", tree, "-cf", archive, "layer.tar", configName, "manifest.json"]);
  return archive;
}
