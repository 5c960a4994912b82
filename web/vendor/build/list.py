#!/usr/bin/env python3
"""Writes web/vendor/VENDOR.toml: what is vendored, from where, why, and the SHA-256 of every file.

With --check it writes nothing and fails when a file differs from the list.
"""
import hashlib
import pathlib
import sys
import tomllib

VENDOR = pathlib.Path(__file__).resolve().parent.parent
PARTS = [
    ("htmx", "4.0.1", "0BSD", "htmx.org", ["htmx/htmx.js"], "licences/htmx.txt",
     "fragments, morphing, server-sent events and upserts by attributes; every page loads it"),
    ("xterm.js", "6.0.0", "MIT", "@xterm/xterm and its fit, search, unicode11, web-links and webgl addons",
     ["xterm.js", "xterm.css"], "licences/xterm.txt", "the terminal; loaded by the terminal tab alone"),
    ("Lucide", "1.62.0", "ISC", "lucide-static", "icons/*.svg", "licences/lucide.txt",
     "icons; the sprite holds the names of web/assets/icons.txt"),
    ("Fardel UI (from Pretendard)", "1.3.9", "OFL-1.1", "pretendard", "fonts/ui-*", "licences/pretendard.txt",
     "the console's type, Latin and Korean; renamed because the licence reserves the original's name"),
    ("Fardel Mono (from JetBrains Mono)", "2.304", "OFL-1.1", "JetBrains Mono", "fonts/mono-*",
     "licences/jetbrains-mono.txt", "code, ids and the terminal"),
]


def listing():
    out = ["# Written by web/vendor/build/list.py; the vendor check compares it with the files.\n"]
    for name, version, licence, source, files, text, why in PARTS:
        if isinstance(files, str):
            files = sorted(str(p.relative_to(VENDOR)) for p in VENDOR.glob(files))
        out.append(f'[[part]]\nname = "{name}"\nversion = "{version}"\nlicence = "{licence}"\nsource = "{source}"\n'
                   f'text = "{text}"\nwhy = "{why}"\n')
        for file in files:
            data = (VENDOR / file).read_bytes()
            out.append(f'[[part.file]]\npath = "{file}"\nbytes = {len(data)}\nsha256 = "{hashlib.sha256(data).hexdigest()}"\n')
        out.append("")
    return "\n".join(out)


if sys.argv[1:] == ["--check"]:
    known = tomllib.loads((VENDOR / "VENDOR.toml").read_text("utf-8"))
    if known != tomllib.loads(listing()):
        sys.exit("web/vendor differs from VENDOR.toml")
else:
    (VENDOR / "VENDOR.toml").write_text(listing(), "utf-8")
