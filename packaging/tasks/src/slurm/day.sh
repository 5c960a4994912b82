#!/bin/sh
# A simulated day under Debian's own Slurm: day.sh JOBS STARTS fifo|fair [SPEED]
#
# JOBS is what `fardel bench trace --write-jobs` wrote, STARTS is written for `fardel bench trace --starts`. Needs root and
# a Debian 12 with its package lists. Everything is installed into an overlay over the root that lives in memory and goes
# with this process, and runs in namespaces of its own: neither files, control groups, network nor processes of the machine
# are touched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != inside ]; then
    exec unshare --mount --propagation private /bin/sh "$here/day.sh" inside \
        "$(realpath "$1")" "$(realpath -m "$2")" "$3" "${4:-90}"
fi
jobs=$2 starts=$3 mode=$4 speed=$5 cluster=
place=$(mktemp -d)
finish() {
    [ -z "$cluster" ] || kill -KILL "$cluster" 2>/dev/null || true
    umount --recursive --lazy "$place" 2>/dev/null || true
    rmdir "$place"
}
trap finish EXIT
trap 'exit 1' INT TERM
mount -t tmpfs -o size=4g slurm-day "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
mount --bind /dev "$place/root/dev"
mount -t tmpfs shm "$place/root/dev/shm"
mount -t sysfs -o ro sys "$place/root/sys"
mount -t tmpfs cgroup "$place/root/sys/fs/cgroup"
# No service starts by its installation.
printf '#!/bin/sh\nexit 101\n' > "$place/root/usr/sbin/policy-rc.d"
chmod 755 "$place/root/usr/sbin/policy-rc.d"
packages="slurmctld slurmd slurmdbd slurm-client munge faketime mariadb-server python3-minimal iproute2"
# shellcheck disable=SC2086
chroot "$place/root" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends $packages > "$place/install.log" 2>&1 \
    || { tail -n 20 "$place/install.log" >&2; exit 1; }
mkdir "$place/root/slurm-day"
cp "$here/cluster.sh" "$here/clock.sh" "$here/day.py" "$place/root/slurm-day/"
cp "$jobs" "$place/root/slurm-day/jobs"
# The first process of the process namespace takes all others with it when it ends, and it ends with this one.
unshare --mount --pid --net --uts --ipc --fork --kill-child /bin/sh -c '
    mount -t proc proc "$1/proc"
    exec chroot "$1" /bin/bash /slurm-day/cluster.sh "$2" "$3"' day "$place/root" "$mode" "$speed" &
cluster=$!
wait "$cluster" || { tail -n 30 "$place"/root/slurm-day/*.log >&2; exit 1; }
cluster=
chroot "$place/root" python3 /slurm-day/day.py starts /slurm-day/jobs /slurm-day/completed > "$starts"
echo "Slurm $(chroot "$place/root" slurmctld -V | cut -d' ' -f2), $mode: $(grep -c . "$starts") jobs started"
