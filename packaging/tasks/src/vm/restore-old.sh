# The machine that will be lost: set up through its pages, filled, and saved by one command while it
# serves. Arguments: people, events, seconds that the backup may take, the package.
people=$1 events=$2 most=$3 package=$4
fail() {
    printf 'FAILED: %s\n' "$*"
    journalctl --no-pager --boot --lines=40 --unit=fardel.service
    exit 1
}
quietly() { "$@" >/tmp/said 2>&1 </dev/null || { cat /tmp/said; fail "$* ended with $?"; }; }

# Pages are encrypted everywhere but on loopback, so there is an address.
modprobe dummy
ip link add out0 type dummy
ip address add 192.0.2.1/24 dev out0
ip link set out0 up

quietly dpkg --install "$package"
link=$(sed -n 's/^ *\(https:.*\)$/\1/p' /tmp/said | head -n 1)
[ -n "$link" ] || fail "no setup link: $(cat /tmp/said)"
python3 /mnt/bed/browser.py setup "$link" || fail "the browser"
echo 'keep_days = 29' >>/etc/fardel/fardel.toml

# Written into the file itself: by pages or API it would take the guest a day.
systemctl stop fardel.service || fail "the server does not stop"
python3 /mnt/bed/history.py make "$people" "$events" || fail "no history"
quietly systemctl start fardel.service

mkdir -p /mnt/bed/out
echo 'four random words here' >/root/passphrase
chmod 0600 /root/passphrase
SECONDS=0
fardel backup create /mnt/bed/out/box.backup --passphrase-file /root/passphrase || fail "no backup"
echo "backup: $SECONDS s, 1 command, $(stat -c %s /mnt/bed/out/box.backup) bytes"
[ "$SECONDS" -le "$most" ] || fail "more than $most seconds"
python3 /mnt/bed/history.py tell >/mnt/bed/out/history || fail "no history"
cat /mnt/bed/out/history
