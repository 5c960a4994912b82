#!/bin/busybox sh
# The first process under Debian's kernel: loads what the disk and the host's folders need, mounts them,
# and hands over to the root's own systemd. Where it ends itself, the kernel stops the machine.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc || exit
mount -t devtmpfs dev /dev || exit
for module in /modules/*; do
    insmod "$module" || echo "$module cannot be loaded"
done
# The disk's driver looks for it in its own time.
tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { echo "there is no disk"; exit 1; }
    sleep 0.1
done
mount -t ext4 -o rw,noatime /dev/vda /root || exit
modules=/root/usr/lib/modules/$(uname -r)
mkdir -p "$modules"
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 modules "$modules" || exit
mount -o move /dev /root/dev
umount /proc
exec switch_root /root /sbin/init
