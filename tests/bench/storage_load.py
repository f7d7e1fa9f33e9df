#!/usr/bin/python3
"""An initiator that reads from an iSCSI disk at a fixed rate, by libiscsi, and times each read.

    storage_load.py PORTAL TARGET READS [RATE]

READS of 64 KiB, one after the other, RATE a second or, without it, as fast as they are answered. Prints JSON: reads a
second, and the reads' seconds in ascending order. A read that is late does not make others late: each has its time to
begin, and is timed from then on.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import time

SIZE, BLOCK = 64 << 10, 512
NORMAL_SESSION, NO_DIGEST, LUN = 2, 0, 1   # of iscsi.h


class Initiator:
    def __init__(self, portal: str, target: str) -> None:
        self.lib = ctypes.CDLL("libiscsi.so.7")
        for name in ("iscsi_create_context", "iscsi_read16_sync"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.iscsi_get_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(self.lib.iscsi_create_context(b"iqn.2026-11.org.example:load"))
        self.lib.iscsi_set_session_type(self.context, NORMAL_SESSION)
        self.lib.iscsi_set_targetname(self.context, target.encode())
        self.lib.iscsi_set_header_digest(self.context, NO_DIGEST)
        if self.lib.iscsi_full_connect_sync(self.context, portal.encode(), LUN) != 0:
            raise OSError(f"{portal}: {self.lib.iscsi_get_error(self.context).decode()}")

    def blocks(self) -> int:
        """Of the disk, or as many of it as there surely are."""
        return (16 << 20) // BLOCK

    def read(self, block: int) -> None:
        task = self.lib.iscsi_read16_sync(self.context, LUN, ctypes.c_uint64(block), ctypes.c_uint32(SIZE), BLOCK, 0, 0,
                                          0, 0, 0)
        if not task or ctypes.c_int.from_address(task).value != 0:
            raise OSError(f"a read failed: {self.lib.iscsi_get_error(self.context).decode()}")
        self.lib.scsi_free_scsi_task(ctypes.c_void_p(task))


def main() -> None:
    portal, target, reads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rate = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    initiator = Initiator(portal, target)
    draw = random.Random(1)
    places = initiator.blocks() - SIZE // BLOCK
    times, begin = [], time.perf_counter()
    for number in range(reads):
        due = begin + number / rate if rate else time.perf_counter()
        if (early := due - time.perf_counter()) > 0:
            time.sleep(early)
        initiator.read(draw.randrange(places))
        times.append(time.perf_counter() - due)
    seconds = time.perf_counter() - begin
    print(json.dumps({"rate": reads / seconds, "times": sorted(times)}))


if __name__ == "__main__":
    main()
