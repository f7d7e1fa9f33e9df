#!/usr/bin/python3
"""Makes the linker's version script and the stubs of the soft NIC's library out of symbols.csv.

A stub is weak: a function of the soft NIC with the same name takes its place, and what the soft NIC lacks
fails as the real function would say that the device cannot, with EOPNOTSUPP.
"""

import csv
import sys
from collections import defaultdict

RETURNS = {
    "errno": ("int", "return errno = EOPNOTSUPP;"),
    "minus_errno": ("long", "errno = EOPNOTSUPP; return -EOPNOTSUPP;"),
    "minus_one": ("long", "errno = EOPNOTSUPP; return -1;"),
    "pointer": ("void *", "errno = EOPNOTSUPP; return 0;"),
    "void": ("void", "errno = EOPNOTSUPP;"),
    "zero": ("long", "errno = EOPNOTSUPP; return 0;"),
}


def read_symbols(path):
    with open(path, encoding="utf-8") as table:
        return list(csv.DictReader(line for line in table if not line.startswith("#")))


def version_key(version):
    family, _, number = version.rpartition("_")
    return family, [int(part) for part in number.split(".")]


def version_script(symbols):
    """Newest version first: the linker gives a symbol without a version of its own to the first node that lists it,
    and the name's old binding, which carries its version in a .symver directive, finds the later node."""
    nodes = defaultdict(set)
    for symbol in symbols:
        nodes[symbol["version"]].add(symbol["name"])
    lines = ["/* Generated from symbols.csv. Nothing but these names leaves the library, DPDK least of all. */"]
    hide_the_rest = ["    local: *;"]
    for version in sorted(nodes, key=version_key, reverse=True):
        names = [f"        {name};" for name in sorted(nodes[version])]
        lines += [f"{version} {{", "    global:", *names, *hide_the_rest, "};"]
        hide_the_rest = []
    return "\n".join(lines) + "\n"


def stub(symbol):
    name = symbol["name"]
    if symbol["failure"] == "object":
        return f"__attribute__((weak)) _Bool {name} = 0;"
    result, body = RETURNS[symbol["failure"]]
    if symbol["binding"] == "default":
        return f"__attribute__((weak)) {result} {name}(void) {{ {body} }}"
    return (f'__attribute__((used)) {result} softnic_old_{name}(void) {{ {body} }}\n'
            f'__asm__(".symver softnic_old_{name}, {name}@{symbol["version"]}");')


def main():
    table, script_path, stubs_path = sys.argv[1:]
    symbols = read_symbols(table)
    with open(script_path, "w", encoding="utf-8") as script:
        script.write(version_script(symbols))
    with open(stubs_path, "w", encoding="utf-8") as stubs:
        stubs.write("/* Generated from symbols.csv. */\n#include <errno.h>\n\n")
        stubs.write("\n".join(stub(symbol) for symbol in symbols) + "\n")


if __name__ == "__main__":
    main()
