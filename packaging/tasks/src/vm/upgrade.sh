# One life of the package under a real systemd: install, use, restart, edited settings, upgrade, the
# server killed, downgrade, the holder killed, remove, purge. A session with a memory limit lives
# through all of it until the removal, and an upload goes on behind the upgrade where it stopped.
# Arguments: the older package, the newer package.
older=$1 newer=$2
export DEBIAN_FRONTEND=noninteractive
limit=$((64 << 20))
# Bytes of the upload: at 200 KiB a second it takes longer than an upgrade.
size=$((32 << 20))

# Nobody is there to be asked; progress bars are no use in a log.
package() {
    dpkg "$@" >/tmp/dpkg.log 2>&1 </dev/null
    local code=$?
    cat /tmp/dpkg.log
    [ "$code" = 0 ] || fail "dpkg $1 ended with $code"
}
step() { printf '── %s (after %s s)\n' "$1" "${SECONDS}"; }
# Says what a person would look at first.
fail() {
    printf 'FAILED: %s\n' "$*"
    systemctl --no-pager --lines=0 status fardel.service fardel-sessions.service
    journalctl --no-pager --boot --lines=40 --unit=fardel.service --unit=fardel-sessions.service
    systemd-cgls --no-pager --all | head -n 60
    exit 1
}
# A check that fails says what it wanted and what it got.
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
soon() {
    local what=$1 until=$((SECONDS + 60)) && shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || fail "$what: not within a minute"
        sleep 0.2
    done
}
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
main_pid() { systemctl show --property=MainPID --value "$1"; }
tries() { systemctl show --property=NRestarts --value fardel-sessions.service; }
serves() { fardel ps -q; }

# The session's own process and its control group: found by what it runs, wherever it stands.
find_session() {
    pid=$(pgrep -f '^sleep 86399$' | head -n 1)
    [ -n "$pid" ] || return 1
    group=/sys/fs/cgroup$(cut -d: -f3- "/proc/$pid/cgroup")
    born=$(cut -d' ' -f22 "/proc/$pid/stat")
}

# The session lives, is held as it was, and the server knows it.
session_lives() {
    [ -d "/proc/$pid" ] || fail "$1: the session's process is gone"
    same "$1: the session's process was born" "$(cut -d' ' -f22 "/proc/$pid/stat")" "$born"
    same "$1: memory limit" "$(cat "$group/memory.max")" "$limit"
    soon "$1: the server serves" serves
    soon "$1: the session is listed as running" sh -c "fardel ps -o csv --columns name,state | grep -q '^keep,running'"
    same "$1: a word from inside" "$(fardel exec keep -- cat /tmp/word)" "hello"
    local failed
    failed=$(systemctl list-units --failed --no-legend --plain)
    same "$1: failed units" "$failed" ""
}

api() { curl --silent --show-error --unix-socket /run/fardel/fardel.sock --header 'tus-resumable: 1.0.0' "$@"; }
# How far the upload is; nothing while no server answers.
offset() { api --head "http://box$place" | tr -d '\r' | sed -n 's/^upload-offset: //Ip'; }
# Sends what is in a file from an offset on; the other arguments are curl's.
send() {
    local file=$1 from=$2 && shift 2
    api --request PATCH --header "upload-offset: $from" --header 'content-type: application/offset+octet-stream' \
        --upload-file "$file" "$@" "http://box$place"
}
has_come() { [ "$(offset)" -gt 0 ]; }

step "install"
package --install "$older"
systemctl is-active --quiet fardel-sessions.service || fail "the holder is not active"
systemctl is-active --quiet fardel.service || fail "the server is not active"
soon "the server serves" serves

step "use"
fardel run -d --wait --name keep --cpu 0.2 --mem 64m host -- \
    sh -c 'echo hello >/tmp/word; exec sleep 86399' || fail "the session does not run"
soon "the session's process" find_session
find_session
session_lives "use"
holder=$(main_pid fardel-sessions.service)
server=$(main_pid fardel.service)
same "the server's mount namespace" "$(readlink "/proc/$server/ns/mnt")" "$(readlink /proc/1/ns/mnt)"
for unit in fardel.service fardel-sessions.service; do
    process=$(main_pid "$unit")
    same "system call filter of $unit" "$(field "$process" Seccomp)" 0
    same "no new privileges of $unit" "$(field "$process" NoNewPrivs)" 0
done
# What holds inside is what the runtime sets, not what a unit has.
same "system call filter inside" "$(field "$pid" Seccomp)" 2
same "no new privileges inside" "$(field "$pid" NoNewPrivs)" 1
same "badness inside" "$(cat "/proc/$pid/oom_score_adj")" 200
[ "$(readlink "/proc/$pid/ns/mnt")" != "$(readlink /proc/1/ns/mnt)" ] || fail "the session sees the host's mounts"
while read -r path; do
    [ -z "$(cat "$path/cgroup.procs")" ] || fail "processes stand in $path, above a session"
done < <(path=$(dirname "$group"); while [ "$path" != /sys/fs/cgroup ]; do echo "$path"; path=$(dirname "$path"); done)

step "restart"
systemctl restart fardel.service || fail "the restart ends with $?"
session_lives "restart"

step "an upload"
fardel folder create data || fail "no folder is made"
head -c "$size" /dev/urandom >/tmp/sent
# The name `sent`, as tus writes it.
place=$(api --request POST --header "upload-length: $size" --header 'upload-metadata: filename c2VudA==' \
    --dump-header - --output /dev/null http://box/api/v1/folders/data/uploads |
    tr -d '\r' | sed -n 's/^location: //Ip')
[ -n "$place" ] || fail "the upload is not begun"
send /tmp/sent 0 --limit-rate 200K --max-time 300 >/tmp/sender.log 2>&1 &
sender=$!
soon "bytes of the upload" has_come

step "upgrade, settings edited"
echo '# edited by hand' >>/etc/fardel/fardel.toml
package --install "$newer"
grep -q '^# edited by hand' /etc/fardel/fardel.toml || fail "the edited settings are gone"
same "installed version" "$(dpkg-query -W -f '${Version}' fardel)" "$(dpkg-deb -f "$newer" Version)"
session_lives "upgrade"
same "the holder" "$(main_pid fardel-sessions.service)" "$holder"
[ "$(main_pid fardel.service)" != "$server" ] || fail "the server was not replaced"

step "the upload goes on"
soon "the server serves" serves
wait "$sender"
came=$(offset)
[ "$came" -gt 0 ] && [ "$came" -lt "$size" ] || fail "of the upload came $came of $size bytes"
tail -c +$((came + 1)) /tmp/sent >/tmp/rest
send /tmp/rest "$came" --fail || fail "the rest of the upload is refused"
fardel folder cp data:/sent /tmp/back >/dev/null || fail "the file does not come back"
cmp /tmp/sent /tmp/back || fail "the file is another one"
rm /tmp/sent /tmp/rest /tmp/back

step "the server is killed"
server=$(main_pid fardel.service)
kill -KILL "$server"
soon "another server" sh -c "systemctl is-active --quiet fardel.service && [ \$(systemctl show --property=MainPID --value fardel.service) != $server ]"
session_lives "server killed"

step "downgrade"
package --install "$older"
same "installed version" "$(dpkg-query -W -f '${Version}' fardel)" "$(dpkg-deb -f "$older" Version)"
session_lives "downgrade"
same "the holder" "$(main_pid fardel-sessions.service)" "$holder"

step "the holder is killed"
server=$(main_pid fardel.service)
# Its fifteen seconds between two tries would be spent waiting.
mkdir -p /run/systemd/system/fardel-sessions.service.d
printf '[Service]\nRestartSec=2\n' >/run/systemd/system/fardel-sessions.service.d/soon.conf
systemctl daemon-reload
tried=$(tries)
kill -KILL "$holder"
sleep 1
same "the server" "$(main_pid fardel.service)" "$server"
session_lives "holder killed"
# systemd 252 cannot start a unit in whose group a session lives (219/CGROUP), and tries again until the
# session has ended. Meanwhile nothing else may suffer: longer than one try.
tried_twice() { [ "$(tries)" -ge $((tried + 2)) ]; }
soon "two more tries to start the holder" tried_twice
same "the server" "$(main_pid fardel.service)" "$server"
session_lives "without a holder"

step "remove"
package --remove fardel
if find_session; then fail "the session outlives the removal"; fi
[ ! -d "$group" ] || fail "its control group outlives the removal"
for unit in fardel.service fardel-sessions.service; do
    ! systemctl is-active --quiet "$unit" || fail "$unit is active after the removal"
done
left=$(pgrep -fa '^/usr/bin/fardel|fardel shim|fardel hold')
same "processes left" "$left" ""
left=$(grep -E '/(run|var/lib)/fardel' /proc/self/mountinfo)
same "mounts left" "$left" ""
same "failed units" "$(systemctl list-units --failed --no-legend --plain)" ""

step "purge"
package --purge fardel
[ -s /var/lib/fardel/catalog.sqlite ] || fail "the data is gone"
[ ! -e /etc/fardel/fardel.toml ] || fail "the settings outlive a purge"

step "install again: the data is taken up"
package --install "$newer"
soon "the server serves" serves
fardel ps -a -o csv --columns name,state | grep -q '^keep,ended' || fail "the old session is not known"
step "done"
