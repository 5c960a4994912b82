# What every script in a cluster begins with. Set are NODE (from 1), NODES, BOOT (how often this node was
# started), ADDRESS and ADDRESSES. The cluster answers on standard input.
ip link set vec0 up
ip address add "$ADDRESS/24" dev vec0
for one in $ADDRESSES; do
    grep -q "^$one " /etc/hosts || echo "$one node-${one##*.}" >>/etc/hosts
done
ask_cluster() {
    local answer
    printf '\001cluster %s\n' "$*"
    read -r answer
    [ "$answer" = done ] || { echo "FAILED: cluster $*: $answer"; exit 1; }
}
cut_cable() { ask_cluster cut "$1"; }
join_cable() { ask_cluster join "$1"; }
power_off() { ask_cluster power-off "$1"; }
power_on() { ask_cluster power-on "$1"; }
# Waits until every node that has power is here.
meet() { ask_cluster meet "$1"; }
# Whether a machine answers an echo within two seconds.
reaches() {
    python3 - "$1" <<'END'
import os, socket, struct, sys, time

def packed(checksum):
    return struct.pack("!BBHHH", 8, 0, checksum, os.getpid() & 0xFFFF, 1)

total = sum(struct.unpack("!4H", packed(0)))
total = (total >> 16) + (total & 0xFFFF)
line = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
until = time.monotonic() + 2
try:
    line.sendto(packed(~total & 0xFFFF), (sys.argv[1], 0))
    while (left := until - time.monotonic()) > 0:
        line.settimeout(left)
        packet, sender = line.recvfrom(1500)
        kind, _, _, asked, _ = struct.unpack("!BBHHH", packet[20:28])
        if sender[0] == sys.argv[1] and kind == 0 and asked == os.getpid() & 0xFFFF:
            sys.exit(0)
except OSError:
    pass
sys.exit(1)
END
}
