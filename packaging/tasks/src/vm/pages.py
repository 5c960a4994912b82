"""Reads pages of the console as a browser does and notes how long each answer takes. Runs inside a guest with nothing but
Python's own library, beside browser.py.

    pages.py setup LINK            the first administrator, whose cookie the others use
    pages.py ask FILE ROUNDS       each page so often, in turns, over one connection; adds lines to FILE: microseconds, page
    pages.py told BEFORE GONE BACK compares what was noted before, while a volume was gone, and after that, on a line of JSON
"""

import json
import sys
import time
from urllib.parse import urlsplit

from browser import COOKIES, NAME, PASSWORD, Browser, fail, kept

# Those that people open, and each that tells of folders and volumes.
PAGES = ["/", "/sessions", "/folders", "/storage"]
# What the 99th of a hundred answers may be of what it is otherwise.
PROMISED = 1.1
# What is no noise of a busy machine any more: something waits for the volume.
WAITS = (2, 20_000)


def setup(link):
    parts = urlsplit(link)
    browser = Browser(link)
    code = parts.query.partition("code=")[2]
    form = {"code": code, "name": NAME, "password": PASSWORD, "again": PASSWORD}
    status, where, text = browser.ask("POST", "/setup", form)
    if status != 303 or not browser.cookies:
        fail(f"POST /setup: {status} {where} {text[:2000]}")
    with open(COOKIES, "w") as file:
        json.dump({"origin": browser.origin, "cookies": browser.cookies}, file)


def ask(to, rounds):
    browser = kept()
    link, headers = browser.connection(), browser.headers()
    noted = []
    for number in range(rounds + 1):
        for page in PAGES:
            begun = time.perf_counter()
            link.request("GET", page, None, headers)
            answer = link.getresponse()
            answer.read()
            took = time.perf_counter() - begun
            if answer.status != 200:
                fail(f"GET {page}: {answer.status}")
            # The first round opens the connection and wakes what slept.
            if number:
                noted.append(f"{took * 1e6:.0f} {page}\n")
    link.close()
    with open(to, "a") as file:
        file.writelines(noted)


def samples(path):
    with open(path) as file:
        lines = [line.split() for line in file]
    return [(int(took), page) for took, page in lines]


def quantile(noted, of_thousand):
    ordered = sorted(took for took, _ in noted)
    return ordered[(len(ordered) - 1) * of_thousand // 1000]


def told(before, gone, back):
    # What the machine does to answers by itself is seen between the first and the last; all of it beside what was in between.
    phases = {"before": samples(before), "gone": samples(gone), "back": samples(back)}
    phases["quiet"] = phases["before"] + phases["back"]
    rows = {}
    for name, noted in phases.items():
        rows[name] = {"answers": len(noted), "p50": quantile(noted, 500), "p99": quantile(noted, 990)}
        for page in PAGES:
            own = [one for one in noted if one[1] == page]
            rows[name][page] = {"p50": quantile(own, 500), "p99": quantile(own, 990)}
    ratio = lambda one, other: round(rows[one]["p99"] / rows[other]["p99"], 2)
    measured = ratio("gone", "quiet")
    print(json.dumps({
        "what": "answers of pages before a volume is gone, while it is, and when it is back; before and back together are quiet",
        "unit": "µs",
        "phases": rows,
        "p99_back_to_before": ratio("back", "before"),
        "targets": [{
            "what": "p99 of the console while a volume is gone, × the same otherwise",
            "measured": measured, "target": f"≤ {PROMISED}", "met": measured <= PROMISED,
        }],
    }, ensure_ascii=False), flush=True)
    times, more = WAITS
    if rows["gone"]["p99"] > rows["quiet"]["p99"] * times + more:
        fail("the console answers later")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["setup", link]:
            setup(link)
        case ["ask", to, rounds]:
            ask(to, int(rounds))
        case ["told", before, gone, back]:
            told(before, gone, back)
        case _:
            fail("asked for nothing it knows")
