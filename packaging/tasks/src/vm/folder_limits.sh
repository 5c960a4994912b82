#!/bin/bash
# Two users at 1 GiB each, on a disk whose own quota holds them and then in a pool. Arguments: where the test looks for the
# product's binary, and the file of the test binary in /mnt/tests.
set -u
product=$1
mkdir -p "$(dirname "$product")" /mnt/bed/out
cp /mnt/product/fardel "$product"
cp "/mnt/tests/$2" /root/tests
export FARDEL_SKIPS=/mnt/bed/out/skips FARDEL_FOLDER_MIB=1024
: >"$FARDEL_SKIPS"
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}
run() {
    (cd /root && ./tests --test-threads=1 --nocapture a_session_and_an_upload_stop 2>&1) | tee /run/said || fail "$1"
    grep -q '1 passed' /run/said || fail "$1: the test did not run"
    grep "^held by" /run/said | grep -q "$2" || fail "$1: held by something else than $2"
}

echo "── the quota of the disk"
truncate --size 6G /var/lib/numbered.ext4
mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota /var/lib/numbered.ext4 || fail "mkfs"
mkdir -p /var/lib/numbered
mount -o loop,prjquota /var/lib/numbered.ext4 /var/lib/numbered || fail "mount"
TMPDIR=/var/lib/numbered run "the quota of the disk" ext
umount --lazy /var/lib/numbered
rm /var/lib/numbered.ext4

echo "── a pool"
mkdir -p /var/lib/pooled
TMPDIR=/var/lib/pooled FARDEL_FOLDER_POOL=4g run "a pool" xfs

[ ! -s "$FARDEL_SKIPS" ] || fail "skipped: $(cat "$FARDEL_SKIPS")"
exit "$failed"
