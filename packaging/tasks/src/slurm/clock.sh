#!/bin/bash
# All that goes by the fast clock: Slurm's daemons, and the users who submit.
set -eu
# It ends every process that it can see, so it is for the process namespace of day.sh alone.
if [ ! -d /slurm-day ] || [ "$(hostname)" != slurm-day ]; then
    echo "day.sh runs this" >&2
    exit 2
fi
mode=$1
# Jobs of ordinary users read the clock too.
chmod 666 /dev/shm/* 2>/dev/null || true
: > /slurm-day/completed
if [ "$mode" = fair ]; then
    slurmdbd
    for _ in $(seq 30); do
        sacctmgr -n show cluster > /dev/null 2>&1 && break
        sleep 60
    done
    sacctmgr -i add cluster day > /slurm-day/accounts.log 2>&1 || true
    names=$(tail -n +2 /slurm-day/jobs | cut -f3 | sort -u)
    sacctmgr -i add account "$(echo "$names" | paste -sd, -)" fairshare=1 >> /slurm-day/accounts.log 2>&1
    for name in $names; do
        echo "add user name=$name account=$name fairshare=1"
    done | sacctmgr -i >> /slurm-day/accounts.log 2>&1
fi
slurmctld -c
for node in n1 n2 n3; do
    slurmd -N "$node"
done
for _ in $(seq 60); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 3 ] && break
    sleep 60
done
sinfo -h -N -o '%N %t' >&2
python3 /slurm-day/day.py submit /slurm-day/jobs
# faketime waits for every process that has its clock: all of this namespace but this one and the first.
kill -KILL -1 || true
