#!/bin/bash
# Started last in the guest's boot. Speaks with the host over the first serial line: a line that begins
# with byte 1 is the bed's own word, every other line is the script's.
stty -F /dev/ttyS0 raw -echo
exec </dev/ttyS0 >/dev/ttyS0 2>&1
export HOME=/root TERM=dumb LC_ALL=C.UTF-8
# Mounts named by the host on the kernel's command line: bed.mount=NAME:rw|ro:/PATH/ON/THE/HOST
for word in $(</proc/cmdline); do
    case $word in bed.mount=*) ;; *) continue ;; esac
    IFS=: read -r name mode path <<<"${word#bed.mount=}"
    mkdir -p "/mnt/$name"
    # A kernel that is a process of the host sees paths there; another one asks its machine by name.
    if grep -qw hostfs /proc/filesystems; then
        mount -t hostfs none "/mnt/$name" -o "$mode,$path"
    else
        mount -t 9p "$name" "/mnt/$name" -o "$mode,trans=virtio,version=9p2000.L,msize=262144"
    fi
done
# The first number is seconds since the kernel began.
printf '\001booted %s\n' "$(cut -d' ' -f1 /proc/uptime)"
cd /mnt/bed || exit
mapfile -t arguments <arguments
bash ./script "${arguments[@]}"
printf '\001exit %s\n' "$?"
systemctl --no-block poweroff
