"""Makes the templates of src/store/quota/pool.rs: empty file systems, packed. Needs mkfs.xfs (xfsprogs) and zstd.

Run in the checkout: python3 packaging/pool_templates.py
"""

import os
import struct
import subprocess
import tempfile

PLACE = "src/store/quota"
# Size, and size of the log.
TEMPLATES = {"512m": "64m", "16g": "64m", "256g": "256m"}
# Zeros between two pieces that cost less than a piece of their own.
GAP = 12
MKFS = (
    "mkfs.xfs -q -f -K -m crc=1,finobt=1,reflink=1,rmapbt=0,bigtime=1,inobtcount=1"
    ",uuid=66617264-656c-4000-8000-000000000001 -i size=512,sparse=1,nrext64=0"
    " -s size=4096 -b size=4096 -d agcount=4 -n ftype=1 -l internal=1,size="
)


def pieces(file):
    """Yields each run of bytes that are not zero, with its offset."""
    at = 0
    while True:
        try:
            at = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        file.seek(at)
        data = file.read(end - at)
        begin = 0
        while begin < len(data):
            if data[begin] == 0:
                begin += 1
                continue
            last = here = begin
            while here < len(data) and here - last <= GAP:
                if data[here]:
                    last = here
                here += 1
            yield at + begin, data[begin : last + 1]
            begin = last + 1
        at = end


for size, log in TEMPLATES.items():
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, "image")
        subprocess.run(["truncate", "-s", size, image], check=True)
        subprocess.run(MKFS.split()[:-1] + [MKFS.split()[-1] + log, image], check=True)
        packed = struct.pack("<Q", os.path.getsize(image))
        with open(image, "rb") as file:
            for offset, data in pieces(file):
                packed += struct.pack("<QH", offset, len(data)) + data
        target = f"{PLACE}/pool-{size}.zst"
        subprocess.run(["zstd", "-q", "-19", "-f", "-o", target, "-"], input=packed, check=True)
