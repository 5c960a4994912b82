#!/usr/bin/env python3
"""Makes web/vendor/fonts. Needs fonttools and brotli from pip, and node_modules beside this file.

    fonts.py latin DIR    renames the Latin and mono subsets found in DIR (done once; their glyphs never change)
    fonts.py korean       cuts the Korean faces again, from the syllables web/i18n/ko.toml and messages.toml use today

Pretendard's licence reserves its name, so every subset carries the product's own family name, inside
the file as well as in the style sheet.
"""
import pathlib
import re
import sys

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

HERE = pathlib.Path(__file__).resolve().parent
FONTS = HERE.parent / "fonts"
SOURCE = HERE / "node_modules/pretendard/dist/public/variable/PretendardVariable.ttf"
ROOT = HERE.parent.parent.parent
CATALOGUES = [ROOT / "web/i18n/ko.toml", ROOT / "src/rules/messages.toml"]
# The Latin face carries these three for the language switch; a second copy would never be used.
IN_LATIN = set("한국어")


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


def cut(characters, path, family):
    font = TTFont(SOURCE)
    options = subset.Options()
    options.layout_features = ["kern", "liga", "calt", "ccmp", "locl", "mark", "mkmk", "tnum", "cv05", "case"]
    options.name_IDs = ["*"]
    options.name_languages = [0x409]
    options.notdef_outline = True
    options.hinting = False
    worker = subset.Subsetter(options)
    worker.populate(unicodes=[ord(c) for c in characters])
    worker.subset(font)
    font = instancer.instantiateVariableFont(font, {"wght": (400, 700)})
    save(font, path, family)


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
    save(TTFont(given / "ui-latin.woff2"), FONTS / "ui-latin.woff2", "Fardel UI")
    save(TTFont(given / "mono-latin.woff2"), FONTS / "mono-latin.woff2", "Fardel Mono")
elif sys.argv[1:2] == ["korean"]:
    FONTS.mkdir(exist_ok=True)
    core = syllables("".join(path.read_text("utf-8") for path in CATALOGUES)) - IN_LATIN
    (FONTS / "ui-ko-core.txt").write_text("".join(sorted(core)) + "\n", "utf-8")
    cut(core, FONTS / "ui-ko-core.woff2", "Fardel UI")
    rest = standard_syllables() - core
    rest |= {chr(c) for c in [*range(0x3000, 0x3004), *range(0x3131, 0x318F), *range(0xFF01, 0xFF5F)]}
    cut(rest, FONTS / "ui-ko-ext.woff2", "Fardel UI Ext")
    print(f"{len(core)} syllables in the core face")
else:
    sys.exit(__doc__)
