# Another machine, fresh: the package, and what was carried from the one that was lost. First everything
# that may be wrong with that file; then the restore, by one command.
# Arguments: people, seconds that the restore may take, the package.
people=$1 most=$2 package=$3
backup=/mnt/carried/box.backup
fail() {
    printf 'FAILED: %s\n' "$*"
    journalctl --no-pager --boot --lines=40 --unit=fardel.service
    exit 1
}
quietly() { "$@" >/tmp/said 2>&1 </dev/null || { cat /tmp/said; fail "$* ended with $?"; }; }
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
# Everything of the state and the settings, by name, kind and content; the lock is nobody's state.
everything() {
    find /var/lib/fardel /etc/fardel -not -name '*.lock' -printf '%y %m %p\n' | sort
    find /var/lib/fardel /etc/fardel -type f -not -name '*.lock' -print0 | sort -z | xargs -0 sha256sum
}
# It ends with 1, says this code in a sentence with a way out, and leaves all as it was.
refused() {
    local code=$1 file=$2 secret=$3
    everything >/tmp/before
    fardel backup restore "$file" --replace --passphrase-file "$secret" >/tmp/said 2>&1
    same "$code: exit code" $? 1
    cat /tmp/said
    grep -q "$code" /tmp/said || fail "it does not say $code"
    [ "$(wc -l </tmp/said)" -ge 2 ] || fail "$code: no way out is said"
    everything >/tmp/after
    diff /tmp/before /tmp/after || fail "$code: something was half-applied"
}

modprobe dummy
ip link add out0 type dummy
ip address add 192.0.2.1/24 dev out0
ip link set out0 up
echo 'four random words here' >/root/passphrase
echo 'four other words here' >/root/wrong
chmod 0600 /root/passphrase /root/wrong

quietly dpkg --install "$package"
link=$(sed -n 's/^ *\(https:.*\)$/\1/p' /tmp/said | head -n 1)
[ -n "$link" ] || fail "no setup link: $(cat /tmp/said)"

echo "── what may be wrong"
quietly fardel ps
server=$(systemctl show --property=MainPID --value fardel.service)
# While a server runs, only the answer is looked at: its own state moves.
fardel backup restore "$backup" --replace --passphrase-file /root/passphrase >/tmp/said 2>&1
same "beside a running server: exit code" $? 1
cat /tmp/said
grep -q server.already-running /tmp/said || fail "a running server is not named"
same "the server" "$(systemctl show --property=MainPID --value fardel.service)" "$server"
quietly fardel ps

systemctl stop fardel.service || fail "the server does not stop"
bytes=$(stat -c %s "$backup")
refused backup.wrong-passphrase "$backup" /root/wrong
head -c "$((bytes / 2))" "$backup" >/root/bad
refused backup.cut /root/bad /root/passphrase
cp "$backup" /root/bad
# One bit of one byte, in the middle.
python3 - <<END
with open("/root/bad", "r+b") as file:
    file.seek($bytes // 2)
    byte = file.read(1)[0]
    file.seek($bytes // 2)
    file.write(bytes([byte ^ 1]))
END
refused backup.damaged /root/bad /root/passphrase
rm /root/bad
quietly systemctl start fardel.service
quietly fardel ps
quietly fardel setup-link --quiet
echo "the state that was there serves"

echo "── the restore"
quietly systemctl stop fardel.service
SECONDS=0
fardel backup restore "$backup" --replace --passphrase-file /root/passphrase >/tmp/said 2>&1 ||
    { cat /tmp/said; fail "the restore ended with $?"; }
took=$SECONDS
cat /tmp/said
echo "restore: $took s, 1 command"
[ "$took" -le "$most" ] || fail "more than $most seconds"
grep -q "^$((people + 1)) users, 1 sessions" /tmp/said || fail "it counts other people"
grep -q '^1 session(s) ran elsewhere' /tmp/said || fail "the lost session is not named"
quietly systemctl start fardel.service
quietly fardel ps
echo "it serves again after $SECONDS s"
python3 /mnt/bed/history.py tell >/tmp/history || fail "no history"
diff /mnt/carried/history /tmp/history || fail "another history than before"

grep -q '^keep_days = 29$' /etc/fardel/fardel.toml || fail "other settings than before"
python3 /mnt/bed/browser.py sign-in "$link" || fail "nobody can sign in"
fardel doctor -o json >/tmp/doctor
python3 - <<'END' || fail "the catalog: $(cat /tmp/doctor)"
import json
found = {check["id"]: check for check in json.load(open("/tmp/doctor"))["items"]}
for name in "findings", "catalog-sound", "schema":
    print(f"{name}: {found[name]['state']}: {found[name]['found']}")
    assert found[name]["state"] == "ok", name
END
fardel ps -a -o csv --columns name,state | grep -q '^first,"ended, lost"' ||
    fail "the lost session is not known as ended: $(fardel ps -a -o csv)"
fardel api GET /findings >/tmp/findings && grep -q '"items": \[\]' /tmp/findings ||
    fail "findings: $(cat /tmp/findings)"
[ -z "$(systemctl list-units --failed --no-legend --plain)" ] || fail "failed units"
echo "── done"
