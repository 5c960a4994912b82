# What goes wrong on real machines, one after the other, under the real units: a full disk, broken
# settings, a taken port, a state that is not ours or on another machine's disk, a clock that was set
# back. Each time: a clear sentence with a way out, nothing half-applied, the session that runs meanwhile
# lives, and after the mend all is well.
# Arguments: the older package, the newer package.
older=$1 newer=$2
export DEBIAN_FRONTEND=noninteractive
# What this script writes down goes to memory: the disk will be full.
work=/run/bed && mkdir -p "$work"
said=$work/said

step() { printf '── %s (after %s s)\n' "$1" "$SECONDS"; }
fail() {
    printf 'FAILED: %s\n' "$*"
    cat "$said"
    systemctl --no-pager --lines=0 status fardel.service
    journalctl --no-pager --boot --lines=30 --unit=fardel.service
    df /
    exit 1
}
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
quietly() { "$@" >"$said" 2>&1 </dev/null || fail "$* ended with $?"; }
soon() {
    local what=$1 until=$((SECONDS + 90)) && shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || fail "$what: not within 90 s"
        sleep 0.5
    done
}
# Not by the command line, which reads the settings itself and refuses broken ones too.
serves() {
    systemctl is-active --quiet fardel.service &&
        curl --silent --fail --output /dev/null --unix-socket /run/fardel/fardel.sock http://box/api/v1/sessions
}
# A command fails, and its sentence has this code and a line that says what to do.
refused() {
    local code=$1 && shift
    if "$@" >"$said" 2>&1 </dev/null; then fail "$* is not refused"; fi
    grep -Eq "\((code )?$code[,)]" "$said" || fail "$* does not say $code"
    [ "$(wc -l <"$said")" -ge 2 ] || fail "$code: no way out"
    sed -n '1,2s/^/    /p' "$said"
}
# The server does not start: `systemctl start` fails, the status shows the exit, and the sentence with
# this word stands in the journal, to which both point.
does_not_start() {
    local word=$1 since
    systemctl stop fardel.service
    since=$(date +%s)
    if systemctl start fardel.service >"$said" 2>&1; then fail "it starts"; fi
    soon "the status shows the exit" failed
    # The journal is written a little later than what happens.
    soon "the journal says $word" told "$word" "$since"
    grep -m 1 "$word" "$said" | sed 's/^/    /'
    lives
}
failed() {
    if systemctl --no-pager --lines=0 status fardel.service >"$said" 2>&1; then return 1; fi
    grep -Eq 'code=exited, status=[1-9]' "$said"
}
told() {
    journalctl --no-pager --output=cat --unit=fardel.service --since="@$2" >"$said"
    grep -q "$1" "$said"
}
# The server is tried again every few seconds: nobody has to start it after the mend.
mended() {
    soon "$1: it serves after the mend" serves
    lives
}
lives() { [ "$(cut -d' ' -f22 "/proc/$pid/stat" 2>/dev/null)" = "$born" ] || fail "the session was ended"; }
# So many bytes are left; none: not one, for root neither.
fill() {
    local leave=$1 free
    # What ext4 keeps back for its own accounts nobody gets.
    free=$(stat --file-system --format="(%f - $(cat /sys/fs/ext4/ubda/reserved_clusters)) * %S" /)
    fallocate --length "$(((free) - (leave ? leave : 4 << 20)))" /filler || fail "the disk cannot be filled"
    [ "$leave" = 0 ] || return 0
    # The rest, in ever smaller pieces; what cannot be written any more is the aim.
    dd if=/dev/zero of=/filler.rest bs=64k >/dev/null 2>&1
    dd if=/dev/zero of=/filler.rest bs=1k oflag=append conv=notrunc >/dev/null 2>&1
    sync
}
empty() { rm -f /filler /filler.rest && sync; }

step "disk full during the installation"
# Room for half of the program.
fill $((16 << 20))
if dpkg --install "$older" >"$said" 2>&1 </dev/null; then fail "it installs on a full disk"; fi
grep -qi 'no space left on device' "$said" || fail "dpkg does not say why"
grep -im 1 'no space left on device' "$said" | sed 's/^/    /'
[ ! -e /usr/bin/fardel ] && [ ! -e /usr/bin/fardel.dpkg-new ] || fail "half a program is left"
[ ! -e /lib/systemd/system/fardel.service ] || fail "a unit is left"
empty
quietly dpkg --install "$older"
soon "it serves" serves

quietly fardel run -d --wait --name keep --cpu 0.1 --mem 64m host -- sh -c 'exec sleep 86399'
pid=$(pgrep -f '^sleep 86399$' | head -n 1)
born=$(cut -d' ' -f22 "/proc/$pid/stat")
[ -n "$born" ] || fail "the session does not run"
echo 'four random words here' >/root/passphrase
chmod 0600 /root/passphrase
version=$(dpkg-query -W -f '${Version}' fardel)

step "disk full while the server works"
quietly fardel run -d --wait --name spare --cpu 0.1 --mem 32m host -- sh -c 'exec sleep 86398'
fill 0
refused disk.full fardel run -d --name more --cpu 0.1 --mem 32m host -- true
serves || fail "it does not answer on a full disk"
step "disk full during a backup"
refused disk.full fardel backup create /root/full.backup --passphrase-file /root/passphrase
[ -z "$(ls /root/*.backup* 2>/dev/null)" ] || fail "half a backup is left: $(ls /root)"
step "disk full during an upgrade"
if dpkg --install "$newer" >"$said" 2>&1 </dev/null; then fail "it upgrades on a full disk"; fi
grep -qi 'no space left on device' "$said" || fail "dpkg does not say why"
same "version" "$(dpkg-query -W -f '${Version} ${db:Status-Abbrev}' fardel)" "$version ii "
serves || fail "it does not answer after an upgrade that failed"
# Whatever runs can be ended.
quietly fardel session stop spare
soon "the session ends" sh -c "! pgrep -f '^sleep 86398\$'"
lives
step "room again"
empty
soon "a new session" fardel run --cpu 0.1 --mem 32m --name again host -- true
quietly dpkg --install "$newer"
mended "upgrade"
quietly fardel backup create /root/good.backup --passphrase-file /root/passphrase
quietly fardel backup verify /root/good.backup --passphrase-file /root/passphrase
quietly fardel api GET /findings
grep -q '"items": \[\]' "$said" || fail "findings"

step "settings that cannot be read"
cp -p /etc/fardel/fardel.toml "$work/good.toml"
echo 'listen = [' >>/etc/fardel/fardel.toml
if systemctl reload fardel.service >"$said" 2>&1; then fail "broken settings are taken"; fi
serves || fail "a running server suffers from a broken file"
does_not_start 'fardel.toml'
step "a setting that there is not"
{ cat "$work/good.toml" && echo 'keep_day = 3'; } >/etc/fardel/fardel.toml
does_not_start 'keep_days'
cp -p "$work/good.toml" /etc/fardel/fardel.toml
mended "settings"

step "a port that is taken"
systemctl stop fardel.service
python3 -c '
import signal, socket
held = socket.create_server(("0.0.0.0", 443))
signal.pause()' &
taker=$!
soon "the port is taken" sh -c 'ss -Hltn "sport = :443" | grep -q .'
does_not_start 'listen.taken'
kill "$taker"
mended "port"

step "a state that is open to others, and somebody else's"
systemctl stop fardel.service
chown nobody /var/lib/fardel && chmod 0777 /var/lib/fardel
# Without the unit nobody puts it right.
refused state.foreign-owner fardel serve
chown root /var/lib/fardel
refused state.exposed fardel serve
# The units own their directory: systemd gives it back before the server starts.
chown nobody /var/lib/fardel
quietly systemctl start fardel.service
same "owner and mode" "$(stat -c '%U %a' /var/lib/fardel)" "root 700"
mended "owner"
systemctl stop fardel.service
chown nobody /var/lib/fardel/catalog.sqlite && chmod 0666 /var/lib/fardel/catalog.sqlite
quietly systemctl start fardel.service
same "mode of the catalog" "$(stat -c %a /var/lib/fardel/catalog.sqlite)" 600
mended "catalog"

step "a state on another machine's disk"
bash /mnt/bed/nfs.sh /srv/nfs /mnt/nfs >"$said" 2>&1 || fail "no NFS: $?"
same "kind of disk" "$(stat --file-system --format=%T /mnt/nfs)" nfs
mkdir -m 0700 /mnt/nfs/state
{ cat "$work/good.toml" && echo 'data = "/mnt/nfs/state"'; } >/etc/fardel/fardel.toml
does_not_start 'state.network-disk'
same "what was made there" "$(ls -A /mnt/nfs/state)" ""
# A backup may lie there.
quietly fardel backup verify /root/good.backup --scratch /root --passphrase-file /root/passphrase
quietly fardel --quiet backup create /mnt/nfs/box.backup --data /var/lib/fardel --passphrase-file /root/passphrase
cp -p "$work/good.toml" /etc/fardel/fardel.toml
mended "NFS"
umount /mnt/nfs || fail "the share stays"

step "a clock that is set back two years"
now=$(date +%s)
quietly date --set="2 years ago"
quietly systemctl restart fardel.service
soon "it serves in the past" serves
lives
fardel doctor >"$said" 2>&1
grep -iE 'clock|newer than' "$said" | sed 's/^/    /'
grep -qiE 'The clock says .* past|clock was set back|newer than the clock|from the future' "$said" || fail "nobody speaks of the clock"
quietly fardel run --name past --cpu 0.1 --mem 32m host -- true
quietly date --set="@$((now + 60))"
quietly systemctl restart fardel.service
mended "clock"
quietly fardel run --name present --cpu 0.1 --mem 32m host -- true
quietly fardel api GET /findings
grep -q '"items": \[\]' "$said" || fail "findings"

lives
fardel ps -o csv --columns name,state | grep -q '^keep,running' || fail "the session is not listed as running"
same "failed units" "$(systemctl list-units --failed --no-legend --plain)" ""
step "done"
