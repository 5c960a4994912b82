#!/bin/sh
# Builds the scikit-learn environment from Debian packages alone and saves it twice: as the
# docker-archive that podman writes and as an OCI archive. Both hold the same two layers (the
# Debian base with Python, and one example script), so importing the second stores no new bytes.
#
# usage: sklearn.sh OUT_DIR      (root; needs mmdebstrap, buildah and podman; runs no container)
set -eu

out=${1:?usage: sklearn.sh OUT_DIR}
suite=${SUITE:-bookworm}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# Own storage: nothing of the machine's container engines is read or changed.
engine="--root $work/storage --runroot $work/run --storage-driver vfs"

# Sessions bring their own /dev, so the archive carries no device nodes, only the place for them.
mmdebstrap --variant=minbase --skip=output/dev \
    --include=python3,python3-numpy,python3-sklearn,tini \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
    "$suite" "$work/root.tar"

# shellcheck disable=SC2086
{
    podman $engine import "$work/root.tar" localhost/debian-python:12
    made=$(buildah $engine from --pull-never localhost/debian-python:12)
    mkdir "$work/empty"
    buildah $engine copy --chmod 0755 "$made" "$work/empty" /dev
    buildah $engine copy --chmod 0755 "$made" "$here/train_digits.py" /opt/examples/train_digits.py
    buildah $engine config \
        --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        --env PYTHONUNBUFFERED=1 --env OMP_NUM_THREADS=1 \
        --workingdir /opt/examples --cmd '["/bin/bash"]' \
        --label org.opencontainers.image.title="Python with scikit-learn" \
        --label org.opencontainers.image.description="Debian 12, Python 3.11, numpy, scikit-learn" \
        "$made"
    buildah $engine commit "$made" localhost/sklearn:12
    podman $engine save --format docker-archive -o "$work/sklearn-docker.tar" localhost/sklearn:12
    podman $engine save --format oci-archive -o "$work/sklearn-oci.tar" localhost/sklearn:12
    mv "$work/sklearn-docker.tar" "$work/sklearn-oci.tar" "$out/"
    buildah $engine rm "$made"
}
ls -l "$out"
