# Promise (Sessions survive failures): Forty sessions with open notebooks and ten open terminals survive a package
# upgrade. Kernels answer again with their values, terminals with their scrollback, an upload goes on where it was, a
# connection to a listed server stays open, and the API is unavailable for at most 10 s.
"""What is open while the package is replaced: JupyterLab of an environment from a stick, a crowd of little notebooks,
terminals, a file on its way into a folder, and a connection to a listed server. Runs inside a guest that browser.py has
set up.

    notebooks.py cell IMAGE            JupyterLab by a click, a cell prints; the next click shows its page in time
    notebooks.py upgrade SESSIONS TERMINALS PACKAGE
                                       so many sessions with a notebook each, and open terminals, through an upgrade
"""

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

from browser import COOKIES, FORM, NAME, PASSWORD, TIMEOUT, Browser, Socket, Terminal, fail, kept, soon

# What a person puts up with while the server is replaced.
SILENCE = 10.0
# From the click on an app that listens to its page.
PAGE = 2.0
# How long a kernel may take for one cell before it is asked once more: the first is asked while it starts.
CELL = 60
# One user has a quarter of the hundred ports of apps.
SECOND = "mina"
# How long an app may take to listen.
STARTS = 600
# What each little notebook has of the one processor. With a hundredth it cannot answer the question whether it is ready
# within the two seconds that the server waits: each question is a process of its own, a millisecond in a tenth of a second.
SHARE = 0.1
# Where each little notebook listens inside its session, and the listed server on this machine.
PORT, SERVER = 8000, 5432
# Of the file that is on its way: what is acknowledged before the upgrade, the rest, and one piece of that.
FIRST, REST, PIECE = 4 << 20, 8 << 20, 64 << 10

# Names itself by a number that it draws at its start, and says each message again behind that number.
KERNEL = r"""
import binascii, os, signal, socket
from _sha1 import sha1
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
kernel = os.urandom(4).hex().encode()
door = socket.create_server(("127.0.0.1", 8000), backlog=64)
while True:
    client, _ = door.accept()
    if os.fork():
        client.close()
        continue
    lines, head = client.makefile("rb"), {}
    lines.readline()
    while line := lines.readline().strip():
        name, _, value = line.partition(b":")
        head[name.lower()] = value.strip()
    key = head.get(b"sec-websocket-key")
    if key is None:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(kernel) + kernel)
        os._exit(0)
    accept = sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    client.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        + binascii.b2a_base64(accept).strip() + b"\r\n\r\n"
    )
    while len(two := lines.read(2)) == 2:
        mask, said = lines.read(4), lines.read(two[1] & 127)
        if two[0] & 15 == 8:
            break
        text = kernel + b" " + bytes(byte ^ mask[at % 4] for at, byte in enumerate(said))
        client.sendall(bytes([0x81, len(text)]) + text)
    os._exit(0)
"""

# Holds one connection to the listed server by its name in the list, and says each line again.
CALLER = 'exec 3<>"/dev/tcp/db/$1" || exit 1; while read -r line <&3; do echo "$line" >&3; done'


def words(page):
    """What a page says, without its tags."""
    _, _, main = page.partition("<main")
    return " ".join(re.sub(r"<[^>]*>", " ", main or page).split())[:600]


class App:
    """An app of a session at its own origin, entered by a click on it in the console."""

    def __init__(self, browser, session, name):
        self.page = f"/sessions/{session}/apps/{name}"
        self.browser = browser

        def clicked():
            headers = browser.headers() | {"Content-Type": FORM}
            status, said, content = browser.send("POST", self.page, headers, "to=")
            if status != 303:
                raise OSError(f"{status} {words(content.decode(errors='replace'))}")
            return said["Location"]

        # An app that its user starts is refused until it listens.
        way = soon(f"{self.page} is opened", clicked, STARTS)
        self.origin, self.first = soon(f"{self.page} leads on", lambda: self.led(way))

    def led(self, way):
        """Goes where the page of the app leads; gives its origin, entered, and the path of its first page."""
        status, said, content = self.browser.send("GET", way, self.browser.headers())
        _, leads, entry = said.get("Refresh", "").partition("url=")
        if not leads:
            raise OSError(f"{status} {words(content.decode(errors='replace'))}")
        parts = urlsplit(entry)
        # A browser sends the cookies of a host to each of its ports.
        origin = Browser(f"{parts.scheme}://{parts.netloc}", self.browser.cookies)
        status, said, content = origin.send("GET", f"{parts.path}?{parts.query}", tab(origin))
        if status != 303:
            raise OSError(f"{status} {words(content.decode(errors='replace'))}")
        return origin, said["Location"]

    def shown(self):
        """The first page, as a tab asks for it."""
        path = self.first
        for _ in range(5):
            status, said, content = self.origin.send("GET", path, tab(self.origin))
            if status not in (301, 302, 303, 307):
                break
            path = said["Location"].removeprefix(self.origin.origin)
        if status != 200:
            fail(f"{self.page}: {path} answers {status}: {words(content.decode(errors='replace'))}")
        return content


def tab(browser):
    """The headers of a navigation from the console to another port of its host."""
    headers = browser.headers()
    del headers["Origin"]
    return headers | {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


class Jupyter:
    """A kernel of a JupyterLab, begun or found again, by the addresses that its page uses."""

    def __init__(self, app, kernel=None):
        self.origin = app.origin
        self.kernel = kernel or self.origin.api("POST", "/api/kernels", {"name": "python3"})["id"]

    def run(self, code):
        """Runs a cell on a socket of its own; gives what it printed."""
        session, own = uuid.uuid4().hex, uuid.uuid4().hex
        line = Socket(self.origin, f"/api/kernels/{self.kernel}/channels?session_id={session}")
        line.stream.settimeout(CELL)
        asked = {
            "header": {
                "msg_id": own, "username": "", "session": session, "msg_type": "execute_request", "version": "5.3",
                "date": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            },
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {
                "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
                "stop_on_error": True,
            },
        }
        try:
            line.say(1, json.dumps(asked).encode())
            printed = ""
            while True:
                kind, content = line.message()
                said = json.loads(content) if kind == 1 else {}
                if said.get("parent_header", {}).get("msg_id") != own:
                    continue
                if said["msg_type"] == "stream":
                    printed += said["content"]["text"]
                elif said["msg_type"] == "error":
                    fail(f"the cell {code!r}: {said['content']}")
                elif said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
                    return printed
        finally:
            line.close()

    def prints(self, code, wanted):
        def tried():
            printed = self.run(code)
            if wanted not in printed:
                raise OSError(f"{code!r} prints {printed!r}")
            return True

        soon(f"the cell {code!r} prints {wanted!r}", tried)


def running(users):
    """The running sessions of these users, by their ids."""
    rows = {row["id"]: row for user in users for row in user.sessions()}
    return {id: row for id, row in rows.items() if row["state"] == "running"}


def launched(user, request):
    return user.api("POST", "/api/v1/sessions", {"image": "host"} | request)


def cell(image):
    begun = time.monotonic()
    browser = kept()
    session = launched(browser, {
        "name": "lab", "image": image,
        "resources": {"cpu": 0.5, "memory": 1 << 30, "shm": 64 << 20},
    })["id"]
    soon("the session of the environment runs", lambda: session in running([browser]))
    clicked = time.monotonic()
    App(browser, session, "jupyter").shown()
    print(f"JupyterLab: its first page {time.monotonic() - clicked:.1f} s after the click that starts it", flush=True)
    clicked = time.monotonic()
    app = App(browser, session, "jupyter")
    if b"JupyterLab" not in app.shown():
        fail("the page is not that of a JupyterLab")
    took = time.monotonic() - clicked
    print(f"from a click on a JupyterLab that listens to its page: {took:.2f} s", flush=True)
    if took > PAGE:
        fail(f"it takes {took:.1f} s, and {PAGE:.0f} s are promised")
    jupyter = Jupyter(app)
    jupyter.prints("kept = 6 * 7\nprint('cell', kept)", "cell 42")
    with open(COOKIES) as file:
        saved = json.load(file)
    saved |= {"lab": session, "kernel": jupyter.kernel}
    with open(COOKIES, "w") as file:
        json.dump(saved, file)
    print(f"launched, opened and printed in {time.monotonic() - begun:.1f} s", flush=True)


class Open(threading.Thread):
    """Something that is open over the upgrade; `failure` says what came of it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.failure = None

    def run(self):
        try:
            self.live()
        except (OSError, EOFError, http.client.HTTPException, SystemExit) as error:
            self.failure = f"{type(self).__name__}: {error!r}"


class OpenTerminal(Open):
    """A terminal left open: reconnects by itself, as the page does, and looks for its scrollback."""

    def __init__(self, browser, session, mark):
        super().__init__()
        self.browser, self.session, self.mark = browser, session, mark
        self.first = Terminal(browser, session)
        # The typed line shows the sum, not its result.
        self.first.type(f"echo {mark}-$((40+2))\n")
        self.first.expect(f"{mark}-42")

    def live(self):
        self.first.stream.settimeout(None)
        try:
            while True:
                self.first.listen()
        except (OSError, EOFError):
            pass
        again = soon(f"{self.mark} reconnects", lambda: Terminal(self.browser, self.session))
        again.expect(f"{self.mark}-42")
        again.type(f"echo {self.mark}-$((40+3))\n")
        again.expect(f"{self.mark}-43")


class OpenNotebook(Open):
    """A notebook left open: its socket comes back by itself at the same address, to the same kernel."""

    def __init__(self, browser, session):
        super().__init__()
        self.origin = App(browser, session, str(PORT)).origin
        self.line, self.kernel = soon(f"the notebook of {session} answers", lambda: self.dialed("first"))

    def dialed(self, word):
        line = Socket(self.origin, "/kernel")
        line.say(1, word.encode())
        kernel, _, said = line.message()[1].decode().partition(" ")
        if said != word:
            raise OSError(f"{said!r} for {word!r}")
        return line, kernel

    def live(self):
        self.line.stream.settimeout(None)
        try:
            self.line.message()
            raise SystemExit("it says what was not asked")
        except (OSError, EOFError):
            pass
        _, kernel = soon("a notebook reconnects", lambda: self.dialed("again"))
        if kernel != self.kernel:
            raise OSError(f"it is the kernel {kernel}, not {self.kernel}")


class OpenUpload(Open):
    """A file on its way into a folder. What was acknowledged is not sent again, and it arrives whole."""

    def __init__(self, browser, over):
        super().__init__()
        self.browser, self.over, self.broken = browser, over, 0
        self.content = os.urandom(FIRST + REST)
        self.folder = browser.api("POST", "/api/v1/folders", {"name": "notes"})["id"]
        name = base64.b64encode(b"notes.bin").decode()
        status, said, content = browser.send("POST", f"/api/v1/folders/{self.folder}/uploads", self.headers() | {
            "Upload-Length": str(len(self.content)), "Upload-Metadata": f"filename {name}", "Content-Length": "0",
        })
        if status != 201:
            fail(f"an upload is not begun: {status} {content[:2000]!r}")
        self.place = said["Location"].removeprefix(browser.origin)
        self.sent(0, FIRST)

    def headers(self):
        return self.browser.headers() | {"Tus-Resumable": "1.0.0"}

    def sent(self, offset, end):
        """Sends what lies between; what follows the first part slowly, and its last piece when the upgrade is over."""
        link = self.browser.connection()
        try:
            link.putrequest("PATCH", self.place)
            head = self.headers() | {
                "Upload-Offset": str(offset), "Content-Length": str(end - offset),
                "Content-Type": "application/offset+octet-stream",
            }
            for name, value in head.items():
                link.putheader(name, value)
            link.endheaders()
            for at in range(offset, end, PIECE):
                if at + PIECE >= len(self.content):
                    self.over.wait(8 * TIMEOUT)
                elif at >= FIRST:
                    # Half of the rest goes soon; the other half is still on its way when the server leaves.
                    self.over.wait(0.05 if at < FIRST + REST // 2 else 1)
                link.send(self.content[at : min(at + PIECE, end)])
            answer = link.getresponse()
            said = answer.read()
            if answer.status != 204:
                raise OSError(f"{answer.status} {said[:500]!r}")
        finally:
            link.close()

    def reached(self):
        status, said, _ = self.browser.send("HEAD", self.place, self.headers())
        if status not in (200, 204):
            raise OSError(f"HEAD: {status}")
        return (int(said["Upload-Offset"]),)

    def live(self):
        offset = FIRST
        until = time.monotonic() + 8 * TIMEOUT
        while time.monotonic() < until:
            try:
                self.sent(offset, len(self.content))
                break
            except (OSError, EOFError, http.client.HTTPException):
                self.broken += 1
                (offset,) = soon("the upload is known again", self.reached)
                if offset < FIRST:
                    raise OSError(f"only {offset} bytes are left of {FIRST}")
        path = f"/api/v1/folders/{self.folder}/files?path=notes.bin"
        status, _, content = self.browser.send("GET", path, self.browser.headers())
        told = [hashlib.sha256(all).hexdigest() for all in (content, self.content)]
        if status != 200 or told[0] != told[1]:
            raise OSError(f"{status}, {len(content)} bytes that differ")
        if self.broken == 0:
            raise OSError("the upload was never broken off: nothing was tried")


class OpenConnection(Open):
    """A connection of a session to a listed server on this machine: one and the same over the upgrade."""

    def __init__(self, browser, over):
        super().__init__()
        self.over, self.count = over, 0
        self.door = socket.create_server(("127.0.0.1", SERVER))
        self.door.settimeout(TIMEOUT)
        policy = {"networks": ["none", "list"], "targets": [f"db=127.0.0.1:{SERVER}"]}
        browser.api("POST", "/api/v1/policies", {"name": "warehouse", "egress": policy})
        browser.api("PUT", "/api/v1/policies/warehouse/uses", {"level": "user", "subject": NAME})
        launched(browser, {
            "name": "caller", "kind": "batch", "network": "list", "command": ["bash", "-c", CALLER, "bash", str(SERVER)],
            "resources": {"cpu": 0.02, "memory": 32 << 20, "shm": 1 << 20},
        })
        self.client, _ = self.door.accept()
        self.client.settimeout(TIMEOUT)
        self.lines = self.client.makefile("rb")
        self.asked()

    def asked(self):
        self.count += 1
        word = f"{self.count}\n".encode()
        self.client.sendall(word)
        said = self.lines.readline()
        if said != word:
            raise OSError(f"{said!r} comes back for {word!r}")

    def live(self):
        while not self.over.wait(0.1):
            self.asked()
        self.asked()
        self.door.setblocking(False)
        try:
            self.door.accept()
        except BlockingIOError:
            return
        raise OSError("it was opened once more")


def another(browser):
    """A second user of the box, signed in."""
    browser.api("POST", "/api/v1/users", {"name": SECOND, "password": PASSWORD})
    other = Browser(browser.origin)
    status, where, text = other.ask("POST", "/login", {"name": SECOND, "password": PASSWORD, "next": "/"})
    if status != 303 or not other.cookies:
        fail(f"POST /login: {status} {where} {words(text)}")
    return other


def upgrade(count, terminals, package):
    with open(COOKIES) as file:
        saved = json.load(file)
    operator = kept()
    users = [operator, another(operator)]
    begun = time.monotonic()
    over = threading.Event()
    call = OpenConnection(operator, over)
    # The first one was launched by the form.
    own = count // 2 - 1
    for user, many in zip(users, (own, count - 1 - own)):
        launched(user, {
            "name": "notebook", "replicas": many, "command": ["sh", "-c", 'python3 -IS -c "$0" & exec sh', KERNEL],
            "resources": {"cpu": SHARE, "memory": 32 << 20, "shm": 1 << 20},
        })
    # Beside them are JupyterLab's and the caller's.
    total = count + 2

    def lives():
        def all_run():
            rows = running(users)
            return rows if len(rows) == total else None

        rows = soon(f"{total} sessions run", all_run)
        return {id: (row["incarnation"], row["started_at"]) for id, row in rows.items()}

    before = lives()
    print(f"{total} sessions run after {time.monotonic() - begun:.1f} s", flush=True)
    rows = running(users)
    mine = [
        (id, user)
        for user, name in zip(users, (NAME, SECOND))
        for id, row in sorted(rows.items())
        if row["owner"]["name"] == name and row["name"].startswith("notebook")
    ]
    if len(mine) != count - 1:
        fail(f"{len(mine)} notebooks for {count - 1}")
    opened = [OpenNotebook(user, id) for id, user in mine]
    app = App(operator, saved["lab"], "jupyter")
    print(f"{len(opened)} notebooks are open beside JupyterLab after {time.monotonic() - begun:.1f} s", flush=True)
    opened += [
        OpenTerminal(operator, id, f"mark{number}")
        for number, id in enumerate([id for id, user in mine if user is operator][:terminals])
    ]
    upload = OpenUpload(operator, over)
    opened += [upload, call]
    for one in opened:
        one.start()
    dpkg = subprocess.Popen(
        ["dpkg", "--install", package], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    silent, answered = 0.0, time.monotonic()
    begun, refused = answered, 0
    while True:
        try:
            status, _, _ = operator.ask("GET", "/api/v1/sessions?limit=1", patience=5)
        except (OSError, http.client.HTTPException):
            status = 0
        now = time.monotonic()
        if status == 200:
            silent, answered = max(silent, now - answered), now
            if dpkg.poll() is not None:
                over.set()
                if not any(one.is_alive() for one in opened):
                    break
        else:
            refused += 1
        if now - begun > 8 * TIMEOUT:
            fail(f"what was open does not come back: {[type(one).__name__ for one in opened if one.is_alive()]}")
        time.sleep(0.05)
    said = dpkg.stdout.read()
    if dpkg.returncode != 0:
        fail(f"dpkg ended with {dpkg.returncode}: {said}")
    lost = [one.failure for one in opened if one.failure]
    if lost:
        fail(f"{len(lost)} of what was open: {lost[:10]}")
    # The kernel of the cell has the value that it had, at the address that its page has open.
    Jupyter(app, saved["kernel"]).prints("print('still', kept)", "still 42")
    if lives() != before:
        fail("other sessions run after the upgrade than before it")
    if refused == 0:
        fail("the server was never away: nothing was tried")
    print(
        f"upgrade with {total} sessions: 0 killed, {len(mine)} notebooks and JupyterLab answer again, {terminals} "
        f"terminals back with scrollback, an upload broken off {upload.broken} time(s) arrived whole, one connection to "
        f"a listed server said {call.count} words, API silent {silent:.1f} s",
        flush=True,
    )
    if silent > SILENCE:
        fail(f"the API was silent for {silent:.1f} s, and {SILENCE:.0f} s are promised")


if __name__ == "__main__":
    if sys.argv[1] == "cell":
        cell(sys.argv[2])
    else:
        upgrade(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
