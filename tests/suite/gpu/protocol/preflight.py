"""Group 0 of the protocol: facts about a machine's real driver, one JSON document. Changes no setting.

    python3 preflight.py SOURCES [LIBCUDA]

SOURCES: the folder src/guest, for the committed lists of names.
"""

import ctypes
import glob
import json
import os
import re
import struct
import subprocess
import sys

sources = sys.argv[1]
library_path = sys.argv[2] if len(sys.argv) > 2 else "libcuda.so.1"
facts = {}


def attempt(what, ask):
    """Writes down an answer, or why there is none."""
    try:
        facts[what] = ask()
    except Exception as fault:  # noqa: BLE001: whatever it is, it is the answer
        facts[what] = f"not known: {type(fault).__name__}: {fault}"


def text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip()


def exported(path):
    """Names that a 64-bit library exports, from its dynamic symbols."""
    data = open(path, "rb").read()
    offset, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, offset + size * at) for at in range(count)]
    names = set()
    for head in heads:
        if head[1] != 11:  # dynamic symbols
            continue
        strings = heads[head[6]][4]
        for at in range(head[4], head[4] + head[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section:
                end = data.index(b"\0", strings + name)
                names.add(data[strings + name : end].decode())
    return names


def committed(folder):
    """The names that a hook has."""
    (path,) = glob.glob(os.path.join(sources, folder, "names*"))
    return set(re.findall(r"^\s*(\w+)\s*$", text(path), re.M))


def loaded(word):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        found = {line.split()[-1] for line in maps if word in line}
    return sorted(found)[0]


attempt("driver", lambda: text("/proc/driver/nvidia/version"))
attempt("kernel", lambda: " ".join(os.uname()))
attempt("cores", os.cpu_count)
attempt("cards", lambda: run("nvidia-smi", "--query-gpu=name,uuid,memory.total,memory.used,clocks.sm,mig.mode.current", "--format=csv"))
attempt("others_on_the_card", lambda: run("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"))
attempt("cgroup_controllers", lambda: text("/sys/fs/cgroup/cgroup.controllers"))
attempt("dmem_capacity", lambda: text("/sys/fs/cgroup/dmem.capacity"))
attempt("device_nodes", lambda: sorted(glob.glob("/dev/nvidia*")))
attempt("nvml_of_nvidia_smi", lambda: sorted(set(re.findall(r'"([^"]*libnvidia-ml[^"]*)"', run("strace", "-f", "-e", "openat", "nvidia-smi", "-L")))))

cuda = ctypes.CDLL(library_path)
assert cuda.cuInit(0) == 0, "the driver cannot be opened"
real = loaded("libcuda")
facts["libcuda"] = real
attempt("missing_in_our_list", lambda: sorted(n for n in exported(real) - committed("cuda_hook") if n.startswith("cu")))
attempt("missing_in_the_driver", lambda: sorted(committed("cuda_hook") - exported(real)))
attempt("memory_limits_by_cgroup", lambda: hasattr(ctypes.CDLL("libnvidia-ml.so.1"), "nvmlDeviceSetMemoryLimits_v1"))

version = ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(version))
facts["cuda_version"] = version.value


def looked_up(name, flags):
    """What cuGetProcAddress answers; None where it knows no such name."""
    found, status = ctypes.c_void_p(), ctypes.c_int()
    code = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version.value, ctypes.c_uint64(flags), ctypes.byref(status))
    return found.value if code == 0 else None


def pointers():
    """Names whose looked-up address is that of no export: the hook would not know them again."""
    addresses = {ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value: name for name in exported(real) if name.startswith("cu")}
    strangers, compared = [], 0
    bare = {re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name) for name in committed("cuda_hook")}
    for name in sorted(bare):
        for flags in (0, 1, 2):
            found = looked_up(name, flags)
            if found is not None:
                compared += 1
                if found not in addresses:
                    strangers.append(f"{name} flags {flags}")
    return {"compared": compared, "of_no_export": strangers}


attempt("looked_up_pointers", pointers)


def context():
    """Bytes that a first context takes, as the card itself counts."""
    used = lambda: int(run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").split()[0])  # noqa: E731
    before = used()
    handle = ctypes.c_void_p()
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)
    return {"code": code, "mib": used() - before}


attempt("first_context", context)
print(json.dumps(facts, indent=1, ensure_ascii=False))
