#!/usr/bin/python3
"""Compares what the soft NIC's library exports with the installed libibverbs.so.1 and libmlx5.so.1.

Every name at every version must be there, of the same kind (function or data), bound the same way (the default of its
name or an old one), and nothing else but the version names themselves.

    abi_test.py LIBRARY [INSTALLED...]
"""

import re
import subprocess
import sys

INSTALLED = ["/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "/usr/lib/x86_64-linux-gnu/libmlx5.so.1"]


def exports(library):
    """{(name, version, "default" or "old"): kind}"""
    listing = subprocess.run(["readelf", "--wide", "--dyn-syms", library], check=True, capture_output=True,
                             text=True).stdout
    found = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] in ("UND", "ABS") or fields[4] == "LOCAL" or not fields[0].endswith(":"):
            continue
        if fields[0] == "Num:":
            continue
        name, at, version = re.fullmatch(r"([^@]+)(@*)(.*)", fields[7]).groups()
        found[name, version, "default" if at == "@@" else "old" if at else "unversioned"] = fields[3]
    return found


def soname(library):
    listing = subprocess.run(["readelf", "--wide", "--dynamic", library], check=True, capture_output=True,
                             text=True).stdout
    return re.search(r"soname: \[(.*)\]", listing).group(1)


def main():
    library, installed = sys.argv[1], sys.argv[2:] or INSTALLED
    ours = exports(library)
    theirs = {}
    for one in installed:
        theirs.update(exports(one))
    wrong = [f"missing: {name}@{version} ({binding})" for name, version, binding in theirs.keys() - ours.keys()]
    wrong += [f"not in rdma-core: {name}@{version} ({binding})"
              for name, version, binding in ours.keys() - theirs.keys()]
    wrong += [f"{key[0]} is {ours[key]}, not {theirs[key]}"
              for key in theirs.keys() & ours.keys() if ours[key] != theirs[key]]
    if soname(library) != "libibverbs.so.1":
        wrong.append(f"soname {soname(library)}")
    print("\n".join(sorted(wrong)), end="\n" if wrong else "")
    print(f"{len(theirs)} exports compared, {len(wrong)} differences")
    return 1 if wrong or not theirs else 0


if __name__ == "__main__":
    sys.exit(main())
