#!/bin/sh
# Builds one small image (busybox from Debian, three layers with removed files, an emptied directory,
# hard links, attributes and set-id bits) and saves it in every shape an import meets. The layers of
# all shapes are the same, so importing the second stores no new bytes.
#
# usage: tiny.sh OUT_DIR      (root; needs umoci, skopeo, podman, python3; runs no container)
#
# tiny-docker20.tar comes from a real daemon when dockerd is found (DOCKERD names it), else it is
# left out. tiny-docker25.tar is written by the rules of that version: an OCI layout with plain
# layers beside manifest.json.
set -eu

out=${1:?usage: tiny.sh OUT_DIR}
mkdir -p "$out"
out=$(CDPATH= cd -- "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

apt-get download -qq busybox-static
dpkg -x busybox-static_*.deb busybox

umoci init --layout layout
umoci new --image layout:1
umoci unpack --image layout:1 bundle
root=bundle/rootfs

mkdir -p "$root/bin" "$root/etc" "$root/dev" "$root/proc" "$root/sys" "$root/root" "$root/home/user" \
    "$root/usr/share/gone/deep" "$root/usr/share/emptied" "$root/var/run"
mkdir -m 1777 "$root/tmp"
cp busybox/bin/busybox "$root/bin/busybox"
for applet in sh ls cat echo sleep id env mount ps free nproc head tail wc true false stty kill date; do
    ln -s busybox "$root/bin/$applet"
done
printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
chown -R 1000:1000 "$root/home/user"
echo old >"$root/etc/old"
echo 1 >"$root/usr/share/gone/deep/file"
echo 2 >"$root/usr/share/emptied/file"
echo same >"$root/usr/share/one"
ln "$root/usr/share/one" "$root/usr/share/two"
cp busybox/bin/busybox "$root/bin/setuid"
chmod 4755 "$root/bin/setuid"
umoci repack --image layout:1 bundle
umoci unpack --image layout:1 second

root=second/rootfs
rm "$root/etc/old"
rm -r "$root/usr/share/gone"
rm -r "$root/usr/share/emptied"
mkdir "$root/usr/share/emptied"
echo new >"$root/usr/share/emptied/new"
echo changed >"$root/etc/motd"
umoci repack --image layout:1 second
umoci unpack --image layout:1 third

root=third/rootfs
rm "$root/usr/share/two"
ln -s one "$root/usr/share/two"
mkfifo -m 600 "$root/var/run/pipe"
setfattr -n user.note -v hello "$root/etc/motd" 2>/dev/null || true
umoci repack --image layout:1 third
umoci config --image layout:1 --config.env PATH=/bin --config.env GREETING="hello world" \
    --config.workingdir /home/user --config.cmd /bin/sh \
    --config.label org.opencontainers.image.title=Tiny --config.label fardel.test=yes

rm -f "$out"/tiny-*.tar
tar -C layout -cf "$out/tiny-umoci.tar" .
skopeo copy -q --dest-compress-format zstd oci:layout:1 oci:zstd:1
tar -C zstd -cf "$out/tiny-skopeo-zstd.tar" .

storage="[vfs@$work/storage+$work/run]"
skopeo copy -q oci:layout:1 "containers-storage:${storage}localhost/tiny:1"
engine="--root $work/storage --runroot $work/run --storage-driver vfs"
# shellcheck disable=SC2086
podman $engine save -q --format docker-archive -o "$out/tiny-podman-docker.tar" localhost/tiny:1
# shellcheck disable=SC2086
podman $engine save -q --format oci-archive -o "$out/tiny-podman-oci.tar" localhost/tiny:1

python3 - "$out/tiny-podman-docker.tar" "$out/tiny-docker25.tar" <<'PYTHON'
import hashlib, io, json, sys, tarfile

old = tarfile.open(sys.argv[1])
image = json.load(old.extractfile("manifest.json"))[0]
blobs = {}


def keep(content, media):
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media, "digest": "sha256:" + digest, "size": len(content)}


kind = "application/vnd.oci.image."
config = keep(old.extractfile(image["Config"]).read(), kind + "config.v1+json")
layers = [keep(old.extractfile(name).read(), kind + "layer.v1.tar") for name in image["Layers"]]
manifest = {"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": config, "layers": layers}
entry = keep(json.dumps(manifest).encode(), kind + "manifest.v1+json")
entry["annotations"] = {
    "io.containerd.image.name": "docker.io/library/tiny:1",
    "org.opencontainers.image.ref.name": "1",
}
index = {"schemaVersion": 2, "mediaType": kind + "index.v1+json", "manifests": [entry]}


def blob(descriptor):
    return "blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")


with tarfile.open(sys.argv[2], "w", format=tarfile.USTAR_FORMAT) as new:
    for directory in ("blobs", "blobs/sha256"):
        member = tarfile.TarInfo(directory + "/")
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        new.addfile(member)

    def add(name, content):
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o644
        new.addfile(member, io.BytesIO(content))

    for digest, content in sorted(blobs.items()):
        add("blobs/sha256/" + digest, content)
    add("index.json", json.dumps(index).encode())
    docker = [{"Config": blob(config), "RepoTags": ["tiny:1"], "Layers": [blob(layer) for layer in layers]}]
    add("manifest.json", json.dumps(docker).encode())
    add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
PYTHON

dockerd=${DOCKERD:-$(command -v dockerd || true)}
if [ -n "$dockerd" ]; then
    PATH=$(dirname "$dockerd"):$(dirname "$dockerd")/../bin:$PATH
    socket="unix://$work/docker.sock"
    "$dockerd" --data-root "$work/docker" --exec-root "$work/docker-run" --pidfile "$work/docker.pid" \
        --host "$socket" --bridge=none --iptables=false --storage-driver vfs >"$work/docker.log" 2>&1 &
    daemon=$!
    for _ in $(seq 100); do
        docker --host "$socket" version >/dev/null 2>&1 && break
        sleep 0.1
    done
    docker --host "$socket" load -q -i "$out/tiny-podman-docker.tar"
    docker --host "$socket" tag localhost/tiny:1 tiny:1
    docker --host "$socket" save -o "$out/tiny-docker20.tar" tiny:1
    kill "$daemon"
    wait "$daemon" || true
else
    echo "no dockerd: tiny-docker20.tar is left out"
fi
ls -l "$out"
