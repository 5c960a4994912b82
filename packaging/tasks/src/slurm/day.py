"""The users of a simulated day under Slurm, and where their jobs started.

`day.py submit JOBS` submits each job at its second of the day and waits until all are over. It runs by the fast clock.
`day.py starts JOBS COMPLETED` reads Slurm's log of completed jobs and prints a number and a second of each.
"""

import subprocess
import sys
import time
from datetime import datetime, timezone

# Midnight, as cluster.sh sets the clock two hours before it.
MIDNIGHT = datetime(2025, 11, 25, tzinfo=timezone.utc).timestamp()
# So many jobs of one second are submitted early, with that second as their begin: sbatch takes seconds of the fast clock.
MANY = 100
EARLY_FROM = 5 * 3600
# Submissions that run at once.
AT_ONCE = 4


def table(path):
    with open(path) as lines:
        next(lines)
        for line in lines:
            number, submit, user, cards, limit, run = line.split()
            yield int(number), int(submit), user, int(cards), int(limit), int(run)


def submission(job, begin):
    number, submit, user, cards, limit, run = job
    command = ["sbatch", "-Q", f"--uid={user}", f"--gid={user}", f"--account={user}", "-N1", "-n1"]
    command += [f"--gres=card:{cards}", f"--time={-(-limit // 60)}", f"--job-name={number}", "--chdir=/tmp"]
    command += ["--output=/dev/null", "--error=/dev/null"]
    if begin:
        at = datetime.fromtimestamp(MIDNIGHT + submit, timezone.utc)
        command.append(f"--begin={at:%Y-%m-%dT%H:%M:%S}")
    return command + [f"--wrap=exec sleep {run}"]


def submit(path):
    jobs = list(table(path))
    seconds = [job[1] for job in jobs]
    many = {second for second in set(seconds) if seconds.count(second) >= MANY}
    early = [job for job in jobs if job[1] in many]
    plan = [(job[1], job, False) for job in jobs if job[1] not in many]
    for at, job in enumerate(early):
        spread = (job[1] - EARLY_FROM) * at // len(early)
        plan.append((EARLY_FROM + spread, job, True))
    plan.sort(key=lambda one: (one[0], one[1][0]))
    under_way, late = [], 0
    for second, job, begin in plan:
        wait = MIDNIGHT + second - time.time()
        late = max(late, -wait)
        if wait > 0:
            time.sleep(wait)
        while len(under_way) >= AT_ONCE:
            under_way = [one for one in under_way if one.poll() is None]
            time.sleep(1)
        under_way.append(subprocess.Popen(submission(job, begin)))
    for one in under_way:
        one.wait()
    print(f"all submitted, at most {late:.0f} s of the fast clock late", file=sys.stderr)
    while subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout.strip():
        time.sleep(600)


def seconds(text):
    at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return at.timestamp() - MIDNIGHT


def starts(path, completed):
    jobs = {job[0]: job for job in table(path)}
    longer = []
    with open(completed) as lines:
        for line in lines:
            fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
            if fields.get("StartTime", "Unknown") in ("Unknown", "None"):
                continue
            # How late a submission was is no wait: it counts from when Slurm could have started it.
            could = max(seconds(fields["SubmitTime"]), seconds(fields["EligibleTime"]))
            waited = max(0, seconds(fields["StartTime"]) - could)
            number = int(fields["Name"])
            print(f"{number}\t{jobs[number][1] + waited:.0f}\t{fields['JobState']}")
            held = seconds(fields["EndTime"]) - seconds(fields["StartTime"])
            longer.append(held - jobs[number][5])
    # What a job takes to begin and to end counts as often as the clock is fast; our scheduler is played without it.
    if longer:
        mean = sum(longer) / len(longer)
        print(f"jobs held their cards {mean:.0f} s longer than they ran, on average", file=sys.stderr)


if __name__ == "__main__":
    {"submit": submit, "starts": starts}[sys.argv[1]](*sys.argv[2:])
