#!/usr/bin/env python3
"""module_code.py MODULE ARCHITECTURE...: checks that libtandem_cuda.so holds the device code that
CMAKE_CUDA_ARCHITECTURES asks for ("80-real", "90-virtual", "90" for both). Reads the fat binaries in
the file itself: cuobjdump does not come with every toolkit."""

import struct
import sys

FATBIN = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


def entries(data):
    """(kind, architecture) of everything in every fat binary."""
    at = data.find(FATBIN)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
            (architecture,) = struct.unpack_from("<I", data, entry + 28)
            yield kind, architecture
            entry += entry_header + payload
        at = data.find(FATBIN, end)


def main():
    module, wanted = sys.argv[1], sys.argv[2:]
    with open(module, "rb") as file:
        found = sorted(set(entries(file.read())))
    names = [f"{'sm' if kind == ELF else 'compute'}_{architecture}" for kind, architecture in found]
    missing = []
    for name in wanted:
        number, _, form = name.partition("-")
        if not number[:1].isdigit():  # "native", "all": whatever there is
            missing += [] if found else [name]
            continue
        kinds = {"real": [ELF], "virtual": [PTX], "": [ELF, PTX]}[form]
        missing += [name for kind in kinds if (kind, int(number.rstrip("a"))) not in found]
    print(f"{module} holds {', '.join(names) or 'no device code'}")
    if missing:
        sys.exit(f"missing: {', '.join(missing)}")


main()
