# The packed product under Debian's own kernel on several processors: a share of a core is that share
# over all of them, a set of processors given to a session holds every process of it, and the kernel's
# pressure figures tell what is throttled and are read where the product reads them.
# Argument: the package.
export DEBIAN_FRONTEND=noninteractive
step() { printf '── %s (after %s s)\n' "$1" "${SECONDS}"; }
fail() {
    printf 'FAILED: %s\n' "$*"
    journalctl --no-pager --boot --lines=40 --unit=fardel.service --unit=fardel-sessions.service
    systemd-cgls --no-pager --all | head -n 40
    exit 1
}
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
between() { [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || fail "$1: $2, not $3 to $4"; }
soon() {
    local what=$1 until=$((SECONDS + 180)) && shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || fail "$what: not within three minutes"
        sleep 0.5
    done
}
value() { sed -n "s/^$2 //p" "$1"; }
# Microseconds in which something in the group waited for a processor.
waited() { sed -n 's/^some .*total=//p' "$group/cpu.pressure"; }
# Where each process of the group may run, each answer once.
allowed() { sed 's|.*|/proc/&/status|' "$group/cgroup.procs" | xargs sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' | sort -u; }

processors=$(nproc)
[ "$processors" -ge 2 ] || fail "there is one processor"
last=$((processors - 1))

step "install"
dpkg --install "$1" >/tmp/dpkg.log 2>&1 </dev/null || { cat /tmp/dpkg.log; fail "dpkg ended with an error"; }
soon "the server serves" fardel ps -q

step "two loops in half a core"
fardel run -d --wait --name half --cpu 0.5 --mem 64m host -- \
    sh -c 'while :; do :; done & while :; do :; done & wait' || fail "the session does not run"
pid=$(pgrep -f '^sh -c while' | head -n 1)
group=/sys/fs/cgroup$(cut -d: -f3- "/proc/$pid/cgroup")
same "the limit" "$(cat "$group/cpu.max")" "50000 100000"
seconds=20
used=$(value "$group/cpu.stat" usage_usec) pressed=$(waited) begun=$(date +%s%N)
sleep "$seconds"
elapsed=$((($(date +%s%N) - begun) / 1000))
used=$(($(value "$group/cpu.stat" usage_usec) - used)) pressed=$(($(waited) - pressed))
echo "half a core: $((used * 100 / elapsed)) hundredths used; something waited $((pressed * 100 / elapsed)) % of the time"
between "hundredths of a core" "$((used * 100 / elapsed))" 35 56
# Two loops that together get half a core wait most of the time.
between "percent of the time in which something waited" "$((pressed * 100 / elapsed))" 30 101

# The product measures the same.
fardel session metrics half -o json >/tmp/metrics.json
python3 - <<'END' || fail "the product does not say how long a session waits"
import json
newest = json.load(open("/tmp/metrics.json"))["items"][-1]
print({key: newest[key] for key in ("cpu", "cpu_waiting_percent", "memory_waiting_percent")})
assert 30 <= newest["cpu_waiting_percent"] <= 100
assert 0 <= newest["memory_waiting_percent"] <= 100
END

step "one processor of several"
grep -qw cpuset "$group/cgroup.controllers" || fail "the session's group has no set of processors: it was not passed on"
same "before: effective" "$(cat "$group/cpuset.cpus.effective")" "0-$last"
same "before: allowed" "$(allowed)" "0-$last"
echo "$last" >"$group/cpuset.cpus" || fail "the set cannot be written"
same "allowed" "$(allowed)" "$last"
same "an entered process" "$(fardel exec half -- sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)" "$last"
# The 39th field of a process's line is the processor it last ran on.
for one in $(cat "$group/cgroup.procs"); do
    before=$(cut -d' ' -f14 "/proc/$one/stat")
    sleep 2
    after=$(cut -d' ' -f14 "/proc/$one/stat")
    [ "$after" -gt "$before" ] || continue
    same "process $one ran on" "$(cut -d' ' -f39 "/proc/$one/stat")" "$last"
done
# A group with processes cannot be given the empty set back.
echo "0-$last" >"$group/cpuset.cpus"
same "afterwards: allowed" "$(allowed)" "0-$last"

step "pressure"
for kind in cpu memory io; do
    grep -q '^some avg10=' "$group/$kind.pressure" || fail "the session's group has no $kind.pressure"
done
fardel doctor -o json >/tmp/doctor.json
python3 - <<'END' || fail "the doctor does not read what this kernel measures"
import json
checks = json.load(open("/tmp/doctor.json"))["items"]
said = [check for check in checks if check["id"] == "memory-pressure"]
print(said)
assert said and "does not measure" not in json.dumps(said)
END

step "removal"
fardel session rm --force half || fail "the session cannot be removed"
[ ! -d "$group" ] || fail "its control group is left"
same "failed units" "$(systemctl list-units --failed --no-legend --plain)" ""
step "done"
