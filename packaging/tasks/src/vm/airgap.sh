# Behind an air gap: the package, a browser, a session with a terminal, an environment from a stick, a cell
# of its JupyterLab; and a firewall that counts what tries to leave. The stick is the second disk.
# Arguments: sessions, terminals, the older package, the newer package.
#
# Promise (Installation and console): Behind an air gap, one command and a browser lead to a terminal, and one
# more and a stick to a printed cell of JupyterLab, within five minutes, and no packet tries to leave: in
# Debian 12 in every run, in Debian 13 under its own systemd (257) every night.
sessions=$1 terminals=$2 older=$3 newer=$4
fail() {
    printf 'FAILED: %s\n' "$*"
    journalctl --no-pager --boot --lines=40 --unit=fardel.service --unit=fardel-sessions.service
    exit 1
}
quietly() { "$@" >/tmp/said 2>&1 </dev/null || { cat /tmp/said; fail "$* ended with $?"; }; }
# Packets that met the rules of this name.
counted() {
    for filter in iptables-legacy ip6tables-legacy; do
        "$filter" -nvxL OUTPUT || fail "$filter"
    done | awk -v name="/* $1 */" 'index($0, name) { sum += $1 } END { print sum + 0 }'
}

# A way out that leads nowhere: without a route nothing would reach the firewall, and a program that
# tries would look like one that does not.
modprobe dummy
ip link add out0 type dummy
echo 1 >/proc/sys/net/ipv6/conf/out0/disable_ipv6
ip address add 192.0.2.1/24 dev out0
ip link set out0 up
ip route add default via 192.0.2.254
echo 'nameserver 192.0.2.53' >/etc/resolv.conf
for filter in iptables-legacy ip6tables-legacy; do
    "$filter" -A OUTPUT -p udp --dport 53 -m comment --comment names || fail "$filter"
    "$filter" -A OUTPUT -p tcp --dport 53 -m comment --comment names || fail "$filter"
    "$filter" -A OUTPUT ! -o lo -m comment --comment left -j DROP || fail "$filter"
done

# What an administrator brings: an environment in a signed bundle, and settings that name the ports of apps
# and the keys that are trusted.
mkdir -p /mnt/stick /etc/fardel/conf.d
# By its place: what looks for labels knows no disk of User-Mode Linux.
stick=/dev/ubdb
[ -b "$stick" ] || stick=/dev/vdb
mount -o ro "$stick" /mnt/stick || fail "no stick"
cp /mnt/stick/lab.pub /etc/fardel/environment.keys
chmod 644 /etc/fardel/environment.keys
cat >/etc/fardel/conf.d/site.toml <<'END'
listen_apps = "0.0.0.0:8443"
environment_keys_file = "/etc/fardel/environment.keys"
END

SECONDS=0
echo "── dpkg --install"
quietly dpkg --install "$older"
echo "── a browser (after $SECONDS s)"
link=$(sed -n 's/^ *\(https\?:.*\)$/\1/p' /tmp/said | head -n 1)
[ -n "$link" ] || link=$(fardel setup-link --quiet) || fail "no setup link"
python3 /mnt/bed/browser.py setup "$link" || fail "the browser"
echo "from the package to a terminal: $SECONDS s, 1 command"
[ "$SECONDS" -le 300 ] || fail "more than five minutes"

echo "── an environment from the stick (after $SECONDS s)"
quietly fardel environment import /mnt/stick/environment.tar
umount /mnt/stick || fail "the stick stays in use"
fardel environment ls -o csv | grep -q python-jupyter || fail "no environment: $(fardel environment ls)"
echo "── a cell of its JupyterLab (after $SECONDS s)"
python3 /mnt/bed/notebooks.py cell python-jupyter:1.0 || fail "the cell"
echo "from the package to a printed cell: $SECONDS s, 2 commands"
[ "$SECONDS" -le 300 ] || fail "more than five minutes"

echo "── $sessions sessions, their notebooks, $terminals terminals, an upload, a connection, an upgrade"
# The notebooks rest most of the time; together they ask for four processors where one is.
quietly fardel group edit default --cpu-overcommit 8
python3 /mnt/bed/notebooks.py upgrade "$sessions" "$terminals" "$newer" || fail "what was open"

echo "── what tried to leave"
left=$(counted left) asked=$(counted names)
echo "packets: $left, of them questions for names: $asked"
[ "$left" = 0 ] || fail "$left packets tried to leave"
[ "$asked" = 0 ] || fail "$asked questions for names"
# The firewall counts: one question of our own is seen.
(echo a name >/dev/udp/192.0.2.53/53) 2>/dev/null || true
[ "$(counted left)" = 1 ] && [ "$(counted names)" = 1 ] || fail "the firewall does not count"
[ -z "$(systemctl list-units --failed --no-legend --plain)" ] || fail "failed units"
echo "── done (after $SECONDS s)"
