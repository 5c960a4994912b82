# Writes into a folder that lies in the pool, in turns with the same on the disk below it, while a session has the folder.
# Arguments: the package.
export DEBIAN_FRONTEND=noninteractive
work=/run/bed && mkdir -p "$work"
said=$work/said

step() { printf '── %s (after %s s)\n' "$1" "$SECONDS"; }
fail() {
    printf 'FAILED: %s\n' "$*"
    cat "$said"
    journalctl --no-pager --boot --lines=30 --unit=fardel.service
    exit 1
}
quietly() { "$@" >"$said" 2>&1 </dev/null || fail "$* ended with $?"; }
soon() {
    local what=$1 until=$((SECONDS + 90)) && shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || fail "$what: not within 90 s"
        sleep 0.5
    done
}
serves() {
    curl --silent --fail --output /dev/null --unix-socket /run/fardel/fardel.sock http://box/api/v1/sessions
}

step "a folder in the pool, which a session has"
# The small disk of the guest would not get one by itself.
mkdir -p /etc/fardel/conf.d
echo 'pool_size = "1g"' >/etc/fardel/conf.d/pool.toml
quietly dpkg --install "${*: -1}"
soon "it serves" serves
quietly fardel policy set default --folder-bytes 512m
quietly fardel folder create own
quietly fardel run -d --wait --name there --no-home --cpu 0.1 --mem 64m --mount own:/data host -- \
    sh -c 'echo mine >/data/mark; exec sleep 5000'
mark() { find /var/lib/fardel/folders/.scopes -name mark -type f -size +0 | grep .; }
soon "the session writes to its folder" mark
pooled=$(dirname "$(mark)")
native=/var/lib/bed-native
mkdir -p "$native"
for place in "$pooled" "$native"; do stat --file-system --format='    %T at %n' "$place"; done
[ "$(stat --file-system --format=%T "$pooled")" = xfs ] || fail "the folder lies in no pool"
cp /mnt/tasks/tasks /usr/local/sbin/bed-guest
sync

step "what is free of the pool is written once"
written() { journalctl --no-pager --boot --unit=fardel.service | grep -q 'what was free of the pool was written once'; }
# It begins within a minute of the server, and leaves the disk to others.
until written; do
    [ "$SECONDS" -lt 600 ] || fail "the pool was not written once within ten minutes"
    sleep 1
done
filefrag -v /var/lib/fardel/folders/.pool/pool.xfs >/run/bed/extents 2>/dev/null &&
    awk '{ gsub(":", "") } NR > 3 && $6 ~ /^[0-9]+$/ { all += $6; if (/unwritten/) left += $6 } END { printf "    %.1f %% was never written\n", 100 * left / all }' /run/bed/extents

step "writes"
bed-guest vm guest pool "$native" "$pooled" || fail "the writes"
grep -q mine "$pooled/mark" || fail "the session's own file"
quietly fardel session stop there
step "done"
