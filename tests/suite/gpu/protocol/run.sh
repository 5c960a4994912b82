#!/usr/bin/env bash
# The protocol for a machine with one of NVIDIA's cards, group by group, into a folder of raw figures:
#     run.sh FARDEL FOLDER [GROUP…]
# FARDEL is a release binary. Groups: facts memory launch share requests training fault; all of them
# without any, about 15 minutes; FARDEL_TASKS sets how many trainings there are (50). Changes no clocks, power, modes or partitions, takes plain memory only, and
# never resets a card. The last three need PyTorch. What a group needs and lacks is said in its file.
set -uo pipefail
fardel=$(realpath "$1") results=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results"
groups=("$@")
[ $# -gt 0 ] || groups=(facts memory launch share requests training fault)
work() { timeout 540 "$fardel" bench "$@"; }
python=(python3 "$here/workload.py")

for group in "${groups[@]}"; do
    echo "── $group ($(date -u +%H:%M:%S), load $(cut -d' ' -f1 /proc/loadavg))"
    file=$results/$group.json
    case $group in
    facts) timeout 300 python3 "$here/preflight.py" "$here/../../../../src/guest" >"$file" ;;
    memory | launch | share) work -o json "gpu-$group" >"$file" ;;
    requests)
        # Without slices; then in both modes.
        { FARDEL_SLICE=0 "${python[@]}" requests & FARDEL_SLICE=1 "${python[@]}" requests; wait; } >"$results/requests-plain.txt"
        work --slices 0.7,0.3 --slice-memory 8GiB -- "${python[@]}" requests >"$file"
        work --slices 0.7,0.3 --slice-memory 8GiB --elastic -- "${python[@]}" requests >"$results/requests-elastic.json"
        ;;
    training)
        # Small trainings, one after the other on the whole card, then in up to 16 slices of it at a time.
        tasks=${FARDEL_TASKS:-50}
        begun=$(date +%s%3N)
        for _ in $(seq "$tasks"); do "${python[@]}" train; done >"$results/training-whole.txt"
        echo "tasks $tasks milliseconds $(($(date +%s%3N) - begun))" >>"$results/training-whole.txt"
        for at_once in 8 12 16; do
            shares=$(printf '0.06,%.0s' $(seq "$at_once"))
            work --slices "${shares%,}" --slice-memory 4GiB --elastic -- \
                sh -c "for _ in \$(seq $((tasks / at_once + (tasks % at_once > 0)))); do $(printf '%q ' "${python[@]}") train; done" \
                >"$results/training-$at_once.json"
        done
        ;;
    fault) work --slices 0.5,0.5 --slice-memory 4GiB -- "${python[@]}" fault >"$file" ;;
    *) echo "no group is called $group" >&2 && exit 2 ;;
    esac || echo "$group ended with $?"
done
