#!/bin/bash
# Inside the namespaces of day.sh: address, users, munge and MariaDB, which keep the real clock; the rest runs in clock.sh.
set -eu
# It writes users and addresses, so it is for the overlay and the namespaces of day.sh alone.
[ -d /slurm-day ] || { echo "day.sh runs this" >&2; exit 2; }
mode=$1 speed=$2
export TZ=UTC LC_ALL=C
hostname slurm-day
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 10.77.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
printf '127.0.0.1 localhost\n10.77.0.1 slurm-day n1 n2 n3\n' > /etc/hosts

number=20000
for name in $(tail -n +2 /slurm-day/jobs | cut -f3 | sort -u); do
    echo "$name:x:$number:$number::/tmp:/bin/sh" >> /etc/passwd
    echo "$name:x:$number:" >> /etc/group
    number=$((number + 1))
done

mkdir -p /run/munge /etc/slurm /var/spool/slurm
chown munge: /run/munge
dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 status=none
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
setpriv --reuid munge --regid munge --clear-groups munged --force > /slurm-day/munge.log 2>&1

# What fair share counts.
weights=
[ "$mode" = fair ] && weights='TRESBillingWeights="CPU=0.0,Mem=0.0,gres/card=1.0"'
cat > /etc/slurm/slurm.conf <<END
ClusterName=day
SlurmctldHost=slurm-day
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation=/var/spool/slurm
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/slurm-day/slurmctld.log
SlurmdLogFile=/slurm-day/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=card
JobCompType=jobcomp/filetxt
JobCompLoc=/slurm-day/completed
MaxJobCount=10000
MinJobAge=300
# What waits for an answer or a process waits in seconds of the fast clock.
MessageTimeout=1800
TCPTimeout=1800
BatchStartTimeout=3600
UnkillableStepTimeout=7200
SlurmctldTimeout=0
SlurmdTimeout=0
InactiveLimit=0
SchedulerType=sched/backfill
# Slurm's own intervals; only how long one pass may compute is told in seconds of the fast clock.
SchedulerParameters=bf_max_time=900,max_sched_time=180
NodeName=n1 NodeAddr=10.77.0.1 Port=17001 CPUs=256 RealMemory=2000000 Gres=card:800
NodeName=n2 NodeAddr=10.77.0.1 Port=17002 CPUs=256 RealMemory=2000000 Gres=card:800
NodeName=n3 NodeAddr=10.77.0.1 Port=17003 CPUs=256 RealMemory=2000000 Gres=card:800
PartitionName=day Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP $weights
END
echo 'NodeName=n[1-3] Name=card Count=800' > /etc/slurm/gres.conf
echo 'CgroupPlugin=cgroup/v1' > /etc/slurm/cgroup.conf
if [ "$mode" = fair ]; then
    cat >> /etc/slurm/slurm.conf <<END
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=slurm-day
AccountingStorageTRES=gres/card
AccountingStorageEnforce=associations
PriorityType=priority/multifactor
PriorityWeightFairshare=1000000
PriorityDecayHalfLife=7-0
END
    cat > /etc/slurm/slurmdbd.conf <<END
AuthType=auth/munge
DbdHost=slurm-day
SlurmUser=root
LogFile=/slurm-day/slurmdbd.log
PidFile=/run/slurmdbd.pid
MessageTimeout=1800
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
END
    chmod 600 /etc/slurm/slurmdbd.conf
    mkdir -p /run/mysqld
    chown mysql: /run/mysqld
    mariadbd --user=mysql --skip-networking > /slurm-day/mariadb.log 2>&1 &
    for _ in $(seq 60); do
        mariadb -e 'create database if not exists slurm' 2>/dev/null && break
        sleep 1
    done
else
    echo 'AccountingStorageType=accounting_storage/none' >> /etc/slurm/slurm.conf
    echo 'PriorityType=priority/basic' >> /etc/slurm/slurm.conf
fi
# One faketime for all: its children share one clock. It begins two hours before the day.
exec faketime -m -f "@2025-11-24 22:00:00 x$speed" /bin/bash /slurm-day/clock.sh "$mode"
