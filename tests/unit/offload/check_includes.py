#!/usr/bin/python3
"""Who may know whom: the include rules of the house, and the symbols that offload/ asks of a NIC.

offload/ includes nothing of datapath/ or ctrl/ and nothing of Open vSwitch; ctrl/ includes nothing of datapath/; only
ctrl/ includes Open vSwitch's headers. Of a NIC both reference only what rdma-core's public headers declare: ibv_* and
mlx5dv_*.

Usage: check_includes.py SOURCE_ROOT [ARCHIVE_OR_OBJECT ...]
Prints each violation; exits with their number, at most 99.
"""
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
SUFFIXES = {'.c', '.cpp', '.h', '.hpp'}

# Top-level folders of Open vSwitch's include path and headers that only it has.
OVS = re.compile(r'^(openvswitch|openflow|ofproto|vswitchd|ovsdb)/|'
                 r'^(dpif|netdev|dp-packet|odp-|flow\.h|packets\.h|unixctl|'
                 r'smap|ovs-|coverage\.h|util\.h|cmap\.h|config\.h|meta-flow|match\.h)')
DATAPATH_LIBRARIES = re.compile(r'^(rte_|bpf/|xdp/)')

# What offload/ and ctrl/ may ask of rdma-core: symbols that the public headers declare (mlx5dv.h calls two by their
# implementation's name from an inline function).
NIC_SYMBOL = re.compile(r'^(ibv_|mlx5dv_|_mlx5dv_query_port$|_mlx5dv_mkey_check$|_ibv_query_gid_ex$)')
FOREIGN_SYMBOL = re.compile(r'^(rte_|verbs_|mlx5_|rdma_|_mlx5dv_|ibv_cmd_|__ibv_)|^_ZN5ovsdr4soft')


def include_violations(root):
    for folder in ('offload', 'ctrl'):
        for path in sorted((root / folder).rglob('*')):
            if path.suffix not in SUFFIXES:
                continue
            for number, line in enumerate(path.read_text(errors='replace').splitlines(), 1):
                found = INCLUDE.match(line)
                if not found:
                    continue
                name, where = found.group(1), f'{path.relative_to(root)}:{number}'
                if name.startswith('datapath/') or '/datapath/' in name:
                    yield f'{where}: {folder}/ may not include {name}: the soft NIC is a NIC behind rdma-core'
                elif DATAPATH_LIBRARIES.match(name):
                    yield f'{where}: {folder}/ may not include {name}'
                elif folder == 'offload' and (name.startswith('ctrl/') or OVS.match(name)):
                    yield f'{where}: offload/ may not include {name}: it knows no Open vSwitch'


def symbol_violations(binary):
    listing = subprocess.run(['nm', '--undefined-only', '--format=posix', binary], check=True, capture_output=True,
                             text=True)
    seen = set()
    for line in listing.stdout.splitlines():
        symbol = line.split(' ')[0].split('@')[0]
        if not line.strip() or line.rstrip().endswith(':') or symbol in seen:
            continue
        seen.add(symbol)
        if FOREIGN_SYMBOL.match(symbol) and not NIC_SYMBOL.match(symbol):
            yield f'{binary}: references {symbol}: of a NIC only ibv_* and mlx5dv_*'
        if symbol.startswith('ibv_cmd_'):
            yield f'{binary}: references {symbol}: that is for providers'
    if not any(symbol.startswith('mlx5dv_') for symbol in seen) and binary.endswith('liboffload.a'):
        yield f'{binary}: references no mlx5dv_* symbol at all: is it the right file?'


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    violations = list(include_violations(pathlib.Path(sys.argv[1])))
    for binary in sys.argv[2:]:
        violations += symbol_violations(binary)
    for violation in violations:
        print(violation)
    print(f'{len(violations)} violations')
    return min(len(violations), 99)


if __name__ == '__main__':
    sys.exit(main())
