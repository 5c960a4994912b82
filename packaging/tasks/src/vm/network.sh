# The machine's own address is changed through the console's command, under a real systemd-networkd: a
# change that nobody keeps is taken back by itself, one that is kept stays. Argument: the package.
package=$1
fail() {
    printf 'FAILED: %s\n' "$*"
    networkctl --no-pager status out0
    journalctl --no-pager --boot --lines=15 --unit=systemd-networkd --unit=fardel-network-revert.service
    exit 1
}
has() { ip -4 -o address show dev out0 | grep -q " $1 "; }
soon() {
    local until=$((SECONDS + 30))
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || fail "$*: not within 30 s"
        sleep 0.3
    done
}

modprobe dummy
mkdir -p /etc/systemd/network
printf '[NetDev]\nName=out0\nKind=dummy\n' >/etc/systemd/network/10-out0.netdev
printf '[Match]\nName=out0\n[Network]\nAddress=192.0.2.1/24\n' >/etc/systemd/network/10-out0.network
systemctl start systemd-networkd || fail "no networkd"
soon has 192.0.2.1/24
dpkg --install "$package" >/tmp/said 2>&1 </dev/null || { cat /tmp/said; fail "dpkg"; }

echo "── a change that nobody keeps"
fardel console network set out0 --address 192.0.2.77/24 || fail "it is not set"
SECONDS=0
soon has 192.0.2.77/24
if fardel console network set out0 --address 192.0.2.78/24; then fail "a second change beside the first"; fi
until has 192.0.2.1/24; do
    [ "$SECONDS" -lt 120 ] || fail "it is not taken back"
    sleep 1
done
echo "taken back after $SECONDS s"
[ "$SECONDS" -ge 50 ] || fail "nobody had the time to keep it"
! has 192.0.2.77/24 || fail "both addresses are there"
for left in /etc/systemd/network/*fardel* /run/systemd/network/*fardel*; do
    [ ! -e "$left" ] || fail "$left stays"
done
if fardel console network keep; then fail "there is something to keep"; fi

echo "── a change that is kept"
fardel console network set out0 --address 192.0.2.77/24 || fail "it is not set"
soon has 192.0.2.77/24
[ ! -e /etc/systemd/network/05-fardel-out0.network ] || fail "a restart would keep it"
fardel console network keep || fail "it is not kept"
[ -e /etc/systemd/network/05-fardel-out0.network ] || fail "a restart would lose it"
networkctl reload
SECONDS=0
while [ "$SECONDS" -lt 70 ]; do
    has 192.0.2.77/24 || fail "it is taken back after $SECONDS s"
    sleep 2
done
code=$(curl --silent --insecure --max-time 20 --output /dev/null --write-out '%{http_code}' https://192.0.2.77/login)
[ "$code" = 303 ] || fail "the new address answers $code"
[ -z "$(systemctl list-units --failed --no-legend --plain)" ] || fail "failed units"
echo "── done"
