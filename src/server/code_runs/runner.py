# Runs code in one Python that stays. Orders come on the standard input, one a line: a word, and what belongs to it in
# base64. What happens goes out on the standard output, one JSON object a line. Needs nothing but Python 3; where IPython is
# installed, its magics, its pictures and its completions are there too.
import ast, base64, builtins, codecs, io, json, os, signal, sys, threading, traceback

PIECE = 16384
MEDIA = 1 << 20


class Channel:
    def __init__(self):
        self.orders = os.fdopen(os.dup(0), "rb", 65536)
        self.told = os.dup(1)
        self.lock = threading.Lock()
        # How deep the first thread is in a line, and whether it was interrupted there.
        self.depth, self.interrupted = 0, False
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)

    def tell(self, **message):
        # Half a letter, as names of files have, is no JSON that can be read.
        line = (json.dumps(message, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        first = threading.current_thread() is threading.main_thread()
        if first:
            self.depth += 1
        try:
            with self.lock:
                while line:
                    line = line[os.write(self.told, line):]
        finally:
            if first:
                self.depth -= 1
        if first and self.interrupted and self.depth == 0:
            self.interrupted = False
            raise KeyboardInterrupt

    def order(self):
        line = self.orders.readline()
        if not line:
            os._exit(0)
        word, _, rest = line.strip().partition(b" ")
        return word.decode("ascii"), base64.b64decode(rest).decode("utf-8", "replace")


channel = Channel()


def interrupt(number, frame):
    """Ctrl-C; within a line it waits for its end, which would else be broken in two."""
    if channel.depth:
        channel.interrupted = True
    else:
        raise KeyboardInterrupt


class Output(io.TextIOBase):
    encoding = "utf-8"
    errors = "replace"

    def __init__(self, kind, number):
        self.kind, self.number = kind, number
        self.buffer = Bytes(self)

    def writable(self):
        return True

    def fileno(self):
        return self.number

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        for at in range(0, len(text), PIECE):
            channel.tell(t=self.kind, d=text[at:at + PIECE])
        return len(text)


class Bytes(io.RawIOBase):
    def __init__(self, text):
        self.text = text

    def writable(self):
        return True

    def write(self, data):
        self.text.write(bytes(data).decode("utf-8", "replace"))
        return len(data)


class Input(io.TextIOBase):
    encoding = "utf-8"

    def readable(self):
        return True

    def readline(self, size=-1):
        return ask(False) + "\n"

    def read(self, size=-1):
        return self.readline()


class Pipe(threading.Thread):
    """What programs started by the code write to a descriptor."""

    def __init__(self, kind, number):
        super().__init__(daemon=True)
        self.kind = kind
        self.near, far = os.pipe()
        os.dup2(far, number)
        self.number, self.passed = number, threading.Event()
        self.mark = b"\x1e" + base64.b64encode(os.urandom(18)) + b"\x1e"
        os.close(far)
        self.start()

    def run(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        kept = b""
        while True:
            data = os.read(self.near, PIECE)
            if not data:
                return
            kept += data
            while self.mark in kept:
                before, _, kept = kept.partition(self.mark)
                self.say(decoder.decode(before))
                self.passed.set()
            # The mark may come in two pieces.
            hold = kept.rfind(b"\x1e")
            whole = hold if hold >= 0 and self.mark.startswith(kept[hold:]) else len(kept)
            self.say(decoder.decode(kept[:whole]))
            kept = kept[whole:]

    def say(self, text):
        if text:
            channel.tell(t=self.kind, d=text)

    def drain(self):
        self.passed.clear()
        os.write(self.number, self.mark)
        self.passed.wait(2)


def drain_all():
    for pipe in pipes:
        try:
            pipe.drain()
        except OSError:
            pass


def ask(secret):
    channel.tell(t="ask", p=bool(secret))
    while True:
        word, text = channel.order()
        if word == "input":
            return text.rstrip("\n")
        if word == "complete":
            complete(text)


def asked(prompt=""):
    if prompt != "":
        sys.stdout.write(str(prompt))
    return ask(False)


def asked_secret(prompt="Password: ", stream=None):
    sys.stdout.write(str(prompt))
    return ask(True)


FORMS = (
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("image/svg+xml", "_repr_svg_"),
    ("text/html", "_repr_html_"),
)


def display(*values):
    """Shows values as pictures or HTML where they can, else as text."""
    for value in values:
        if not show(value):
            sys.stdout.write(repr(value) + "\n")


def show_media(kind, data):
    """Shows bytes or text of that media type."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
        # As objects for notebooks give pictures.
        if kind in ("image/png", "image/jpeg"):
            try:
                data = base64.b64decode(data, validate=False)
            except ValueError:
                return
    if len(data) > MEDIA:
        sys.stderr.write("%s of %d bytes is too large to be shown\n" % (kind, len(data)))
        return
    channel.tell(t="media", k=kind, d=base64.b64encode(data).decode("ascii"))


def show_bundle(bundle):
    """Shows the best of what an object offers; False where that is text alone."""
    for kind, _ in FORMS:
        data = bundle.get(kind)
        if data and isinstance(data, (bytes, str)):
            show_media(kind, data)
            return True
    return False


def notebook():
    """IPython, where it is installed: begun with the first run, for it takes a while. It runs nothing by itself."""
    if not shells:
        shells.append(begin_notebook())
    return shells[0]


def begin_notebook():
    try:
        import warnings

        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        class Publisher(DisplayPublisher):
            def publish(self, data, metadata=None, **more):
                if not show_bundle(data):
                    sys.stdout.write(str(data.get("text/plain", "")) + "\n")

            def clear_output(self, wait=False):
                pass

        # Nothing of a run is kept on a disk.
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun = InteractiveShell.instance(config=config, user_ns=names)
        begun.display_pub = Publisher(shell=begun)
        return begun
    except Exception:
        return None


def show(value):
    if isinstance(value, type):
        return False
    shell = notebook()
    if shell is not None:
        try:
            if show_bundle(shell.display_formatter.format(value)[0]):
                return True
        except Exception:
            # Its own forms are asked in any case.
            pass
    for kind, name in FORMS:
        form = getattr(value, name, None)
        if callable(form):
            data = form()
            if isinstance(data, tuple):
                data = data[0]
            # An object that has every attribute is none with a picture.
            if data and isinstance(data, (bytes, str)):
                show_media(kind, data)
                return True
    return False


def figures():
    """Shows the figures of matplotlib that were drawn, where it was imported."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(picture, format="png")
        show_media("image/png", picture.getvalue())
        pyplot.close(figure)


def run(code):
    result = 0
    channel.interrupted = False
    signal.signal(signal.SIGINT, interrupt)
    try:
        try:
            shell = notebook()
            if shell is not None:
                code = shell.transform_cell(code)
            tree = ast.parse(code, "<code>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<code>", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<code>", "eval"), names)
                if value is not None:
                    names["_"] = value
                    # After what programs that it ran have written.
                    drain_all()
                    if not show(value):
                        sys.stdout.write(repr(value) + "\n")
            figures()
        except SystemExit as end:
            code = end.code
            result = code if isinstance(code, int) else 0 if code is None else 1
            if result == 1 and not isinstance(code, int):
                sys.stderr.write(str(code) + "\n")
        except BaseException as error:
            result = 130 if isinstance(error, KeyboardInterrupt) else 1
            # The first step is this program's own.
            step = error.__traceback__.tb_next if error.__traceback__ else None
            if isinstance(error, SyntaxError) and step is not None and step.tb_next is None:
                step = None
            sys.stderr.write("".join(traceback.format_exception(type(error), error, step)))
    except KeyboardInterrupt:
        result = 130
    except Exception:
        # What the code left cannot even be told, as where it has closed its output.
        result = 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.interrupted = False
    drain_all()
    channel.tell(t="end", c=result & 255)


def words(begin):
    """Names and attributes that begin so."""
    import rlcompleter

    completer = rlcompleter.Completer(names)
    found = []
    while begin and len(found) < 200:
        match = completer.complete(begin, len(found))
        if match is None:
            break
        found.append(match[:200])
    return found


def complete(text):
    found = []
    try:
        import re

        word = re.search(r"[\w.]*$", text).group(0)
        before = text[:len(text) - len(word)][-1:]
        shell = notebook()
        if shell is not None and (not word or before in ("%", "'", '"', "/")):
            # Magics, keys of dictionaries, names of files.
            shell.Completer.use_jedi = False
            line = text.rpartition("\n")[2]
            matches = shell.complete("", line, len(line))[1]
            found = [str(match)[:200] for match in matches[:200]]
        if not found:
            found = words(word)
    except Exception:
        pass
    channel.tell(t="complete", l=found)


signal.signal(signal.SIGINT, signal.SIG_IGN)
pipes = [Pipe("stdout", 1), Pipe("stderr", 2)]
sys.stdout, sys.stderr, sys.stdin = Output("stdout", 1), Output("stderr", 2), Input()
sys.__stdout__, sys.__stderr__, sys.__stdin__ = sys.stdout, sys.stderr, sys.stdin
builtins.input = asked
try:
    import getpass

    getpass.getpass = asked_secret
except ImportError:
    pass
os.environ.setdefault("MPLBACKEND", "Agg")
names = {"__name__": "__main__", "__builtins__": builtins, "display": display, "show_media": show_media}
shells = []
sys.argv = [""]
channel.tell(t="ready")
while True:
    word, text = channel.order()
    if word == "run":
        try:
            run(text)
        except KeyboardInterrupt:
            # It came between two steps of this program.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            channel.tell(t="end", c=130)
    elif word == "complete":
        complete(text)
