#!/usr/bin/python3
"""Writes layouts.hpp: the device structures of layouts.csv as constants, one namespace a structure.

layouts.csv has a field a row: structure, its size in bits, the field's offset and width in bits, its name. Bit 0 is the
most significant bit of the first byte. Arguments: layouts.csv layouts.hpp
"""

import csv
import sys
from pathlib import Path

HEAD = """// Made of layouts.csv by layouts.py: structures of commands, contexts and capabilities, as the PRM has them.
#pragma once

#include "tests/connectx/bits.hpp"

namespace ovsdr::connectx::layout {
"""


def structures(rows):
    """{structure: (size in bits, [(field, offset, width)])}, in the file's order."""
    found = {}
    for row in rows:
        size, fields = found.setdefault(row["structure"], (int(row["size"]), []))
        offset, width = int(row["offset"]), int(row["width"])
        if size != int(row["size"]) or offset + width > size:
            sys.exit(f"layouts.py: {row['structure']}.{row['field']} does not fit its structure")
        fields.append((row["field"], offset, width))
    return found


def main():
    source, target = map(Path, sys.argv[1:3])
    with source.open(newline="") as file:
        found = structures(csv.DictReader(file))
    lines = [HEAD]
    for name, (size, fields) in found.items():
        lines.append(f"namespace {name} {{")
        lines.append(f"inline constexpr std::size_t size = {size // 8};")
        lines += [f"inline constexpr Field {field}{{{offset}, {width}}};" for field, offset, width in fields]
        lines.append("}")
    lines.append("}  // namespace ovsdr::connectx::layout\n")
    target.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
