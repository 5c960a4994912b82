#!/bin/bash
# Runs the runtime's tests inside the guest, and some of them again where the holder's unit owns the
# sessions' part of the control groups. $1 is where the tests look for the product's binary; each
# further argument is "FILE WORDS": a test binary in /mnt/tests and what is asked of it. The product
# itself is in /mnt/product.
set -u
product=$1
shift
mkdir -p "$(dirname "$product")" /mnt/bed/out
cp /mnt/product/fardel "$product"
export FARDEL_SKIPS=/mnt/bed/out/skips TMPDIR=/tmp
: >"$FARDEL_SKIPS"
failed=0
held=/sys/fs/cgroup/fardel.slice/fardel-sessions.service

fail() {
    echo "FAILED: $*"
    failed=1
}
# One at a time: the guest has one slow processor, and nothing here is about speed.
run() { (cd /root && ./tests --test-threads=1 "$@" 2>&1) || fail "the tests of $*"; }

for asked in "$@"; do
    read -r -a words <<<"$asked"
    cp "/mnt/tests/${words[0]}" /root/tests
    run "${words[@]:1}"
done
left=$(find /sys/fs/cgroup -path '*/fardel/*' -type d)
[ -z "$left" ] || fail "control groups are left: $left"

echo "── with the holder"
sed "s|/usr/bin/fardel|$product|" /mnt/units/fardel-sessions.service \
    >/etc/systemd/system/fardel-sessions.service
systemctl daemon-reload
systemctl start fardel-sessions.service || fail "the holder does not start"
holder=$(systemctl show --property=MainPID --value fardel-sessions.service)
[ "$(cat "$held/hold/cgroup.procs")" = "$holder" ] || fail "the holder does not stand in its leaf"
[ -z "$(cat "$held/cgroup.procs")" ] || fail "a process stands in the holder's inner group"
for controller in cpu io memory pids; do
    grep -qw "$controller" "$held/cgroup.subtree_control" || fail "the holder keeps $controller for itself"
done
run containers::unified containers::life containers::crash::shims containers::crash::twenty
left=$(find "$held" -mindepth 1 -type d ! -path "$held/hold" ! -path "$held")
[ -z "$left" ] || fail "control groups are left: $left"
[ ! -d /sys/fs/cgroup/fardel ] || [ -z "$(find /sys/fs/cgroup/fardel -mindepth 1 -type d)" ] ||
    fail "groups were made beside the holder's part"
systemctl is-active --quiet fardel-sessions.service || fail "the holder is gone"

cat "$FARDEL_SKIPS"
exit "$failed"
