# Promise (Sessions survive failures): Forty sessions and ten open terminals survive a package upgrade.
# Terminals reconnect with their scrollback, and the API is unavailable for at most 10 s.
"""Does over HTTP(S) and WebSocket what a person does in a browser: sets the box up, launches sessions
by the form, types in their terminals. Runs inside a guest with nothing but Python's own library.

    browser.py setup LINK              first administrator, a session by the form, its terminal answers
    browser.py sign-in LINK            the same administrator by name and password, at the link's address
    browser.py crowd SESSIONS TERMINALS PACKAGE
                                       so many sessions and open terminals through an upgrade
"""

import base64
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from urllib.parse import urlencode, urlsplit

NAME, PASSWORD = "operator", "correct horse battery"
TIMEOUT = 120
# What a person puts up with while the server is replaced.
SILENCE = 10.0
COOKIES = "/root/browser.json"


def fail(sentence):
    print("FAILED:", sentence, flush=True)
    sys.exit(1)


def soon(what, try_it):
    """Asks until the answer is true; connections may break meanwhile."""
    until = time.monotonic() + TIMEOUT
    last = None
    while time.monotonic() < until:
        try:
            last = try_it()
            if last:
                return last
        except (OSError, http.client.HTTPException, EOFError) as error:
            last = error
        time.sleep(0.2)
    fail(f"{what}: not within {TIMEOUT} s, last: {last!r}")


class Browser:
    """One origin, its cookies, and what a browser adds to each request."""

    def __init__(self, origin, cookies=None):
        parts = urlsplit(origin)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.authority = parts.netloc
        self.cookies = dict(cookies or {})
        # A person compares the fingerprint once and goes on; this one goes on.
        self.context = ssl.create_default_context() if self.secure else None
        if self.context:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE

    def dial(self, patience=TIMEOUT):
        stream = socket.create_connection((self.host, self.port), timeout=patience)
        return self.context.wrap_socket(stream, server_hostname=self.host) if self.secure else stream

    def headers(self):
        return {
            "Origin": self.origin,
            "Sec-Fetch-Site": "same-origin",
            "Accept": "text/html,application/json;q=0.9",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
        }

    def ask(self, method, path, form=None, patience=TIMEOUT):
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        extra = {"context": self.context} if self.secure else {}
        link = kind(self.host, self.port, timeout=patience, **extra)
        headers = self.headers()
        body = None
        if form is not None:
            body = urlencode(form)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            link.close()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name.strip()] = value
        return answer.status, answer.headers.get("Location", ""), text

    def sessions(self):
        status, _, text = self.ask("GET", "/api/v1/sessions?limit=200")
        if status != 200:
            raise OSError(f"{status} {text[:200]}")
        return json.loads(text)["items"]

    def launch(self, name, replicas, memory_gib):
        status, where, text = self.ask(
            "POST",
            "/sessions/new",
            {
                "kind": "interactive", "image": "host", "command": "", "name": name,
                "cpu": "0.02", "memory": memory_gib, "shm": "1m", "replicas": str(replicas),
                "max_runtime": "", "start_at": "", "after": "", "env": "", "labels": "", "act": "launch",
            },
        )
        if status != 303:
            fail(f"launching {name}: {status} {where} {text[:3000]}")


class Terminal:
    """A WebSocket to a session's terminal; the first byte of a message is its channel."""

    def __init__(self, browser, session):
        self.stream = browser.dial()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /api/v1/sessions/{session}/attach?cols=80&rows=24 HTTP/1.1",
            f"Host: {browser.authority}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Protocol: v1.term",
        ]
        lines += [f"{name}: {value}" for name, value in browser.headers().items()]
        self.stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.stream.recv(1)
            if not byte:
                raise EOFError("no upgrade")
            head += byte
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise OSError(head.decode(errors="replace"))
        self.seen = ""

    def exactly(self, count):
        got = b""
        while len(got) < count:
            more = self.stream.recv(count - len(got))
            if not more:
                raise EOFError("the terminal is closed")
            got += more
        return got

    def listen(self):
        """One message more; pings are left alone, the server sends the next one anyway."""
        first, length = self.exactly(2)
        length &= 127
        if length == 126:
            length = int.from_bytes(self.exactly(2), "big")
        elif length == 127:
            length = int.from_bytes(self.exactly(8), "big")
        message = self.exactly(length)
        if first & 15 == 8:
            raise EOFError("the terminal is closed")
        if first & 15 == 2 and message[:1] == b"\x01":
            self.seen += message[1:].decode(errors="replace")

    def type(self, text):
        message = b"\x00" + text.encode()
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(message))
        assert len(message) < 126, "a longer message needs another kind of length"
        head = bytes([0x82, 0x80 | len(message)])
        self.stream.sendall(head + mask + masked)

    def expect(self, wanted):
        until = time.monotonic() + TIMEOUT
        while wanted not in self.seen:
            if time.monotonic() > until:
                raise OSError(f"{wanted!r} does not come: {self.seen[-500:]!r}")
            self.listen()

    def close(self):
        self.stream.close()


def kept():
    with open(COOKIES) as file:
        saved = json.load(file)
    return Browser(saved["origin"], saved["cookies"])


def setup(link):
    begun = time.monotonic()
    parts = urlsplit(link)
    browser = Browser(link)
    path = f"{parts.path}?{parts.query}"
    status, _, _ = browser.ask("GET", path)
    if status != 200:
        fail(f"GET {path}: {status}")
    code = parts.query.partition("code=")[2]
    form = {"code": code, "name": NAME, "password": PASSWORD, "again": PASSWORD}
    status, where, text = browser.ask("POST", "/setup", form)
    if status != 303 or not browser.cookies:
        fail(f"POST /setup: {status} {where} {text[:2000]}")
    # Whatever the pages of the setup ask further can wait; the console is open.
    browser.launch("first", 1, "0.0625")
    ready = lambda: [row for row in browser.sessions() if row["state"] == "running"]
    session = soon("the first session runs", ready)[0]
    terminal = Terminal(browser, session["id"])
    terminal.type("echo answer-$((6*7))\n")
    terminal.expect("answer-42")
    terminal.close()
    with open(COOKIES, "w") as file:
        json.dump({"origin": browser.origin, "cookies": browser.cookies}, file)
    print(f"set up, launched and typed in {time.monotonic() - begun:.1f} s", flush=True)


def sign_in(link):
    browser = Browser(link)
    if not browser.secure:
        fail(f"{link} is not encrypted")
    form = {"name": NAME, "password": "another horse battery", "next": "/"}
    status, _, _ = browser.ask("POST", "/login", form)
    if status == 303:
        fail("any password signs in")
    form["password"] = PASSWORD
    status, where, text = browser.ask("POST", "/login", form)
    if status != 303 or not browser.cookies:
        fail(f"POST /login: {status} {where} {text[:2000]}")
    status, _, text = browser.ask("GET", "/api/v1/me")
    me = json.loads(text) if status == 200 else {}
    if (me.get("name"), me.get("role")) != (NAME, "administrator"):
        fail(f"GET /api/v1/me: {status} {text[:500]}")
    print(f"{NAME} signs in over HTTPS and is an administrator", flush=True)


class Watched(threading.Thread):
    """A terminal left open: reconnects by itself, as the page does, and looks for its scrollback."""

    def __init__(self, browser, session, mark):
        super().__init__(daemon=True)
        self.browser, self.session, self.mark = browser, session, mark
        self.first = Terminal(browser, session)
        # The typed line shows the sum, not its result.
        self.first.type(f"echo {mark}-$((40+2))\n")
        self.first.expect(f"{mark}-42")
        self.reconnected = 0
        self.failure = None

    def run(self):
        try:
            while True:
                self.first.stream.settimeout(None)
                self.first.listen()
        except (OSError, EOFError):
            pass
        try:
            again = soon(f"{self.mark} reconnects", lambda: Terminal(self.browser, self.session))
            again.expect(f"{self.mark}-42")
            again.type(f"echo {self.mark}-$((40+3))\n")
            again.expect(f"{self.mark}-43")
            self.reconnected += 1
        except (OSError, EOFError, SystemExit) as error:
            self.failure = repr(error)


def crowd(count, open_terminals, package):
    browser = kept()
    begun = time.monotonic()
    # One beside the first.
    browser.launch("crowd", count - 1, "0.015625")

    def all_run():
        rows = [row for row in browser.sessions() if row["state"] == "running"]
        return rows if len(rows) == count else None

    def lives():
        rows = soon(f"{count} sessions run", all_run)
        return {row["id"]: (row["incarnation"], row["started_at"]) for row in rows}

    before = lives()
    print(f"{count} sessions run after {time.monotonic() - begun:.1f} s", flush=True)
    watched = [
        Watched(browser, session, f"mark{number}")
        for number, session in enumerate(sorted(before)[:open_terminals])
    ]
    for one in watched:
        one.start()
    dpkg = subprocess.Popen(
        ["dpkg", "--install", package], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    silent, answered = 0.0, time.monotonic()
    refused = 0
    while True:
        try:
            status, _, _ = browser.ask("GET", "/api/v1/sessions?limit=1", patience=5)
        except (OSError, http.client.HTTPException):
            status = 0
        now = time.monotonic()
        if status == 200:
            silent, answered = max(silent, now - answered), now
            if dpkg.poll() is not None and all(not one.is_alive() for one in watched):
                break
        else:
            refused += 1
        if now - begun > 8 * TIMEOUT:
            fail("the terminals do not come back")
        time.sleep(0.05)
    said = dpkg.stdout.read()
    if dpkg.returncode != 0:
        fail(f"dpkg ended with {dpkg.returncode}: {said}")
    lost = [one.failure for one in watched if one.failure or one.reconnected != 1]
    if lost:
        fail(f"terminals: {lost}")
    if lives() != before:
        fail("other sessions run after the upgrade than before it")
    if refused == 0:
        fail("the server was never away: nothing was tried")
    print(
        f"upgrade with {count} sessions: 0 killed, {len(watched)} terminals back with scrollback, "
        f"API silent {silent:.1f} s",
        flush=True,
    )
    if silent > SILENCE:
        fail(f"the API was silent for {silent:.1f} s, and {SILENCE:.0f} s are promised")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        setup(sys.argv[2])
    elif sys.argv[1] == "sign-in":
        sign_in(sys.argv[2])
    else:
        crowd(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
