"""Does over HTTP(S) and WebSocket what a person does in a browser: sets the box up, launches sessions
by the form, types in their terminals. Runs inside a guest with nothing but Python's own library.

    browser.py setup LINK              first administrator, a session by the form, its terminal answers
    browser.py sign-in LINK            the same administrator by name and password, at the link's address
"""

import base64
import http.client
import json
import os
import socket
import ssl
import sys
import time
from urllib.parse import urlencode, urlsplit

NAME, PASSWORD = "operator", "correct horse battery"
TIMEOUT = 120
FORM = "application/x-www-form-urlencoded"
COOKIES = "/root/browser.json"


def fail(sentence):
    print("FAILED:", sentence, flush=True)
    sys.exit(1)


def soon(what, try_it, limit=TIMEOUT):
    """Asks until the answer is true, for `limit` seconds; connections may break meanwhile."""
    until = time.monotonic() + limit
    last = None
    while time.monotonic() < until:
        try:
            last = try_it()
            if last:
                return last
        except (OSError, http.client.HTTPException, EOFError) as error:
            last = error
        time.sleep(0.2)
    fail(f"{what}: not within {limit} s, last: {last!r}")


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

    def connection(self, patience=TIMEOUT):
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        extra = {"context": self.context} if self.secure else {}
        return kind(self.host, self.port, timeout=patience, **extra)

    def send(self, method, path, headers, body=None, patience=TIMEOUT):
        """One request; gives the answer's status, headers and bytes."""
        link = self.connection(patience)
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            content = answer.read()
        finally:
            link.close()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name.strip()] = value
        return answer.status, answer.headers, content

    def ask(self, method, path, form=None, patience=TIMEOUT):
        headers = self.headers()
        body = None
        if form is not None:
            body = urlencode(form)
            headers["Content-Type"] = FORM
        status, said, content = self.send(method, path, headers, body, patience)
        return status, said.get("Location", ""), content.decode(errors="replace")

    def api(self, method, path, value):
        """Sends JSON as a script of the console does; gives what is answered, which has to be good."""
        headers = self.headers() | {"Content-Type": "application/json", "Accept": "application/json"}
        status, _, content = self.send(method, path, headers, json.dumps(value))
        if not 200 <= status < 300:
            fail(f"{method} {path}: {status} {content[:3000]!r}")
        return json.loads(content) if content else None

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


class Socket:
    """A WebSocket; the head of its request is a browser's."""

    def __init__(self, browser, path, protocol=None):
        self.stream = browser.dial()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {browser.authority}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        lines += [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
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

    def exactly(self, count):
        got = b""
        while len(got) < count:
            more = self.stream.recv(count - len(got))
            if not more:
                raise EOFError("the socket is closed")
            got += more
        return got

    def message(self):
        """The next message: its kind and its bytes. Pings are answered."""
        while True:
            first, length = self.exactly(2)
            length &= 127
            if length == 126:
                length = int.from_bytes(self.exactly(2), "big")
            elif length == 127:
                length = int.from_bytes(self.exactly(8), "big")
            content = self.exactly(length)
            kind = first & 15
            if kind == 8:
                raise EOFError("the socket is closed")
            if kind == 9:
                self.say(10, content)
            elif kind != 10:
                return kind, content

    def say(self, kind, content):
        """Sends a message: 1 is text, 2 is bytes."""
        length = len(content)
        if length < 126:
            head = bytes([0x80 | kind, 0x80 | length])
        else:
            head = bytes([0x80 | kind, 0x80 | 126]) + length.to_bytes(2, "big")
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
        self.stream.sendall(head + mask + masked)

    def close(self):
        self.stream.close()


class Terminal(Socket):
    """The terminal of a session; the first byte of a message is its channel."""

    def __init__(self, browser, session):
        path = f"/api/v1/sessions/{session}/attach?cols=80&rows=24"
        super().__init__(browser, path, "v1.term")
        self.seen = ""

    def listen(self):
        kind, content = self.message()
        if kind == 2 and content[:1] == b"\x01":
            self.seen += content[1:].decode(errors="replace")

    def type(self, text):
        self.say(2, b"\x00" + text.encode())

    def expect(self, wanted):
        until = time.monotonic() + TIMEOUT
        while wanted not in self.seen:
            if time.monotonic() > until:
                raise OSError(f"{wanted!r} does not come: {self.seen[-500:]!r}")
            self.listen()


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


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        setup(sys.argv[2])
    else:
        sign_in(sys.argv[2])
