#!/bin/bash
# Runs the runtime's tests inside the guest. $1 is where the tests look for the product's binary; each
# further argument is "FILE WORDS": a test binary in /mnt/tests and what is asked of it.
set -u
product=$1
shift
mkdir -p "$(dirname "$product")" /mnt/bed/out
cp /mnt/tests/fardel "$product"
export FARDEL_SKIPS=/mnt/bed/out/skips TMPDIR=/tmp
: >"$FARDEL_SKIPS"
failed=0
for asked in "$@"; do
    read -r -a words <<<"$asked"
    cp "/mnt/tests/deps/${words[0]}" /root/tests
    # One at a time: the guest has one slow processor, and nothing here is about speed.
    (cd /root && ./tests --test-threads=1 "${words[@]:1}" 2>&1) || failed=1
done
cat "$FARDEL_SKIPS"
left=$(find /sys/fs/cgroup -path '*/fardel/*' -type d)
if [ -n "$left" ]; then
    echo "control groups are left: $left"
    failed=1
fi
exit "$failed"
