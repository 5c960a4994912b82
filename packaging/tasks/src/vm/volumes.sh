# A file server that stops answering while sessions mount its share, under the real units: the console answers as otherwise,
# sessions elsewhere go on and begin, the volume is named, and all is well once the server is back.
# Arguments: the seconds for which it is gone, the packages.
gone=$1 && shift
package=${*: -1}
export DEBIAN_FRONTEND=noninteractive
work=/run/bed && mkdir -p "$work"
said=$work/said

step() { printf '── %s (after %s s)\n' "$1" "$SECONDS"; }
fail() {
    printf 'FAILED: %s\n' "$*"
    cat "$said"
    systemctl --no-pager --lines=0 status fardel.service
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
refused() {
    local code=$1 && shift
    if "$@" >"$said" 2>&1 </dev/null; then fail "$* is not refused"; fi
    grep -Eq "\((code )?$code[,)]" "$said" || fail "$* does not say $code"
    sed -n '1,2s/^/    /p' "$said"
}
serves() {
    systemctl is-active --quiet fardel.service &&
        curl --silent --fail --output /dev/null --unix-socket /run/fardel/fardel.sock http://box/api/v1/sessions
}
volume_is() { fardel volume ls -o csv --columns name,state | grep -q "^filer,$1"; }
# What the session on the share wrote last, as the server of the share has it.
beat() { cat /srv/nfs/folders/*/*/data/beat 2>/dev/null; }
# Lines that the session elsewhere said so far.
lines() { fardel logs elsewhere | wc -l; }
# Sessions elsewhere begin and end, the one that runs goes on, and pages are read, for so many seconds but once at least;
# answers are noted.
goes_on() {
    local phase=$1 seconds=$2 begun=$SECONDS said_before
    while :; do
        said_before=$(lines)
        # None of them stays in a list, which the pages would show.
        quietly timeout 60 fardel run --rm --cpu 0.1 --mem 32m --no-home --name "new-$SECONDS" host -- true
        sleep 3
        [ "$(lines)" -gt "$said_before" ] || fail "the session elsewhere waits, too"
        serves || fail "the console does not answer"
        quietly python3 /mnt/bed/pages.py ask "$work/$phase" 60
        printf '    %s, %s s\n' "$phase" "$((SECONDS - begun))"
        sleep 3
        [ "$((SECONDS - begun))" -lt "$seconds" ] || return 0
    done
}

step "a share, and a volume on it with a user of the site"
bash /mnt/bed/nfs.sh /srv/nfs /mnt/nfs >"$said" 2>&1 || fail "no NFS: $?"
# Pages are encrypted everywhere but on loopback, so there is an address.
modprobe dummy
ip link add out0 type dummy
ip address add 192.0.2.1/24 dev out0
ip link set out0 up
quietly dpkg --install "$package"
link=$(sed -n 's/^ *\(https\?:.*\)$/\1/p' "$said" | head -n 1)
soon "it serves" serves
[ -n "$link" ] || link=$(fardel setup-link --quiet) || fail "no setup link"
quietly python3 /mnt/bed/pages.py setup "$link"
quietly fardel volume add filer /mnt/nfs --mapped-user 5000:5001
soon "the volume is ready" volume_is ready
quietly fardel folder create shared --volume filer
quietly fardel folder create own

step "a session on the share and one elsewhere"
quietly fardel run -d --wait --name there --no-home --cpu 0.1 --mem 64m --mount shared:/data host -- \
    sh -c 'while :; do date +%s%N >/data/beat; sleep 0.3; done'
quietly fardel run -d --wait --name elsewhere --no-home --cpu 0.1 --mem 64m --mount own:/data host -- \
    sh -c 'while :; do date +%s%N >/data/beat; echo tick; sleep 0.3; done'
soon "the session writes to the share" sh -c 'ls /srv/nfs/folders/*/*/data/beat'
owner=$(stat -c '%u:%g' /srv/nfs/folders/*/*/data/beat)
[ "$owner" = 5000:5001 ] || fail "the file belongs to $owner, not to the user of the site"

step "before"
# As long as afterwards: what the machine itself does more of in time weighs on neither side.
quiet=$((gone / 4))
goes_on before "$quiet"

step "the server of the share stops"
echo 0 >/proc/fs/nfsd/threads
stopped=$SECONDS
soon "the volume is named" volume_is hung
fardel volume ls
refused volume.hung fardel run -d --name late --no-home --cpu 0.1 --mem 32m --mount shared:/data host -- true
goes_on gone "$((gone - (SECONDS - stopped)))"
volume_is hung || fail "the volume is not gone any more"
last=$(beat)

step "it is back"
bash /mnt/bed/nfs.sh /srv/nfs >"$said" 2>&1 || fail "no NFS once more: $?"
soon "the volume is ready by itself" volume_is ready
moved() { [ "$(beat)" != "$last" ]; }
soon "the session on the share goes on" moved
soon "a new session on the share" fardel run --rm --cpu 0.1 --mem 32m --no-home --name again --mount shared:/data host -- \
    test -s /data/beat
fardel ps -o csv --columns name,state >"$said"
for name in there elsewhere; do
    grep -q "^$name,running" "$said" || fail "$name does not run"
done

step "afterwards"
goes_on back "$quiet"
python3 /mnt/bed/pages.py told "$work/before" "$work/gone" "$work/back" || exit 1
for name in there elsewhere; do quietly fardel session stop "$name"; done
quietly fardel api GET /findings
grep -q '"items": \[\]' "$said" || fail "findings"
step "done"
