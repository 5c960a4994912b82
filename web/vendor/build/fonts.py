#!/usr/bin/env python3
"""Makes web/vendor/fonts, and their rules in web/assets/css/tokens.css. Needs fonttools and brotli from pip, and
node_modules beside this file.

    fonts.py latin DIR    cuts the Latin and mono faces again, from the whole subsets found in DIR
                          (web/vendor/fonts/ui-latin.woff2 and mono-latin.woff2 of the commit before the cut)
    fonts.py korean       cuts the Korean faces again, from the syllables of CATALOGUES today

Each alphabet has a first face with what sign-in and overview show, so that a first visit loads no more; the rest
stands in a face of its own. Pretendard's licence reserves its name, so every subset carries the product's own family
name, inside the file as well as in the style sheet.
"""
import pathlib
import re
import sys
import tomllib

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

HERE = pathlib.Path(__file__).resolve().parent
FONTS = HERE.parent / "fonts"
SOURCE = HERE / "node_modules/pretendard/dist/public/variable/PretendardVariable.ttf"
ROOT = HERE.parent.parent.parent
TEXTS = ROOT / "web/i18n/ko.toml"
MESSAGES = ROOT / "src/rules/messages.toml"
CATALOGUES = [TEXTS, ROOT / "web/i18n/launch_texts.toml", MESSAGES]
# Korean of pages that stands beside the catalogues.
TABLES = [ROOT / "src/doors/pages/reference/korean.rs", ROOT / "src/doors/pages/event_words.rs"]
SHEET = ROOT / "web/assets/css/tokens.css"
# The Latin face carries these three for the language switch; a second copy would never be used.
IN_LATIN = set("한국어")
# Sentences of the first pages: these groups and keys of ko.toml, and what the checks of a machine say.
FIRST_GROUPS = {"nav", "theme", "live", "common", "login", "overview", "plan", "waiting", "attention", "state",
                "timeline"}
FIRST_KEYS = re.compile("gpu\\.(figure|key|plan|idle|socket|by)|notices\\.title|policies\\.title|presets\\.title|courses\\.title|budgets\\.title|reservations\\.title|usage\\.title|fair\\.title|announcements\\.title|audit\\.title|projects\\.title|sessions\\.none")
FIRST_MESSAGES = re.compile("check_(?!.*_well)")
FEATURES = ["kern", "ccmp", "locl", "mark", "mkmk", "tnum", "cv05"]


def rename(font, family):
    plain = family.replace(" ", "")
    name = font["name"]
    for record in list(name.names):
        if record.nameID in (1, 16, 21):
            text = family
        elif record.nameID in (3, 6, 25):
            text = plain
        elif record.nameID == 4:
            text = family
        elif record.nameID in (0, 2, 5, 13, 14, 17, 22) or record.nameID >= 256:
            text = record.toUnicode().replace("JetBrains Mono", family).replace("JetBrainsMono", plain)
            if record.nameID == 0:
                text = record.toUnicode()
        else:
            name.removeNames(nameID=record.nameID)
            continue
        record.string = text


def save(font, path, family):
    rename(font, family)
    font.flavor = "woff2"
    font.save(path)
    print(f"{path.name}: {path.stat().st_size} bytes")


def cut(characters, path, family, source=SOURCE, features=FEATURES):
    font = TTFont(source)
    options = subset.Options()
    options.layout_features = features
    options.name_IDs = ["*"]
    options.name_languages = [0x409]
    options.notdef_outline = True
    options.hinting = False
    worker = subset.Subsetter(options)
    worker.populate(unicodes=[ord(c) for c in characters])
    worker.subset(font)
    font = instancer.instantiateVariableFont(font, {"wght": (400, 700)})
    save(font, path, family)


def ranges(characters):
    """As `unicode-range` lists them."""
    found = []
    for code in sorted(map(ord, characters)):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return ",".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in found)


def tell(file, characters):
    """Puts the characters of a face into its rule."""
    sheet = SHEET.read_text("utf-8")
    rule = re.compile(r"(@font-face\{[^}]*fonts/" + re.escape(file) + r"[^}]*unicode-range:)[^}]*\}")
    told, count = rule.subn(lambda found: found[1] + ranges(characters) + "}", sheet)
    if count != 1:
        sys.exit(f"{SHEET} has {count} rules for {file}")
    SHEET.write_text(told, "utf-8")


def sentences(table, path=""):
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from sentences(value, where)
        else:
            yield where, str(value)


def first_syllables():
    # Dates of charts are written by the clock, not by a catalogue.
    found = syllables("년월일")
    for key, text in sentences(tomllib.loads(TEXTS.read_text("utf-8"))):
        if key.split(".")[0] in FIRST_GROUPS or FIRST_KEYS.match(key):
            found |= syllables(text)
    for key, text in sentences(tomllib.loads(MESSAGES.read_text("utf-8"))):
        if FIRST_MESSAGES.match(key) and ".ko" in key:
            found |= syllables(text)
    return found - IN_LATIN


def syllables(text):
    return set(re.findall("[가-힣]", text))


def standard_syllables():
    found = set()
    for lead in range(0xB0, 0xC9):
        for trail in range(0xA1, 0xFF):
            found.add(bytes([lead, trail]).decode("euc-kr"))
    return found


if sys.argv[1:2] == ["latin"]:
    given = pathlib.Path(sys.argv[2])
    FONTS.mkdir(exist_ok=True)
    shown = set("".join(path.read_text("utf-8") for path in [*CATALOGUES, ROOT / "web/i18n/en.toml"]))
    # What stands on pages beside the catalogues: products, arrows, marks, blanks that do not break, the dots of a
    # password.
    shown |= {chr(c) for c in range(0x20, 0x7F)} | IN_LATIN | set("\u00a0•×←↑↓↵▲▼●✓✗—")
    # The mono face keeps no ligatures: they are switched off everywhere.
    for name, family, features in [("ui-latin", "Fardel UI", FEATURES), ("mono-latin", "Fardel Mono", ["ccmp", "locl"])]:
        whole = {chr(c) for c in TTFont(given / f"{name}.woff2").getBestCmap()} - {"\r", "\ufeff"}
        for file, part in [(f"{name}.woff2", whole & shown), (f"{name}-ext.woff2", whole - shown)]:
            cut(part, FONTS / file, family, given / f"{name}.woff2", features)
            tell(file, part)
elif sys.argv[1:2] == ["korean"]:
    FONTS.mkdir(exist_ok=True)
    core = syllables("".join(path.read_text("utf-8") for path in [*CATALOGUES, *TABLES])) - IN_LATIN
    first = first_syllables()
    (FONTS / "ui-ko-core.txt").write_text("".join(sorted(core)) + "\n", "utf-8")
    cut(first, FONTS / "ui-ko-first.woff2", "Fardel UI")
    tell("ui-ko-first.woff2", first)
    cut(core - first, FONTS / "ui-ko-core.woff2", "Fardel UI")
    rest = standard_syllables() - core
    rest |= {chr(c) for c in [*range(0x3000, 0x3004), *range(0x3131, 0x318F), *range(0xFF01, 0xFF5F)]}
    cut(rest, FONTS / "ui-ko-ext.woff2", "Fardel UI Ext")
    print(f"{len(first)} syllables in the first face, {len(core - first)} in the core face")
else:
    sys.exit(__doc__)
