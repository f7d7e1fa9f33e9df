"""Moves random bytes between two processes over a reliable connection, and has SHA-256 compare them. Runs in each of
two namespaces on pyverbs: without an address it waits for its peer, with one it connects.

    rdma_transfer.py --gid INDEX --megabytes N [--chunk BYTES] write|read|send|both [ADDRESS]

write: the one that connects writes to the other; read: it reads from the other; send: it sends to the other; both: each
of the two writes to the other at the same time. The last line of the one that connects is the figure.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import random
import socket
import sys
import time

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_MTU_1024,
                           IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                           IBV_WR_SEND)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18600
ROUND = 64 << 20   # bytes between two comparisons
DEPTH = 64         # requests under way
OPCODES = {"write": IBV_WR_RDMA_WRITE, "read": IBV_WR_RDMA_READ, "send": IBV_WR_SEND, "both": IBV_WR_RDMA_WRITE}


class Channel:
    """What the two say to each other outside of the transfer: a line of JSON each."""

    def __init__(self, address: str | None) -> None:
        if address is None:
            with socket.create_server(("", PORT)) as listener:
                self._socket = listener.accept()[0]
        else:
            self._socket = socket.create_connection((address, PORT), timeout=30)
        self._socket.settimeout(300)
        self._lines = self._socket.makefile("r")

    def exchange(self, mine: object) -> object:
        self._socket.sendall((json.dumps(mine) + "\n").encode())
        return json.loads(self._lines.readline())


class End:
    """A queue pair with memory to send from and memory to receive into."""

    def __init__(self, channel: Channel, gid_index: int) -> None:
        context = Context(name="mlx5_0")
        domain = PD(context)
        self.queue = CQ(context, 2 * DEPTH, None, None, 0)
        access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
        self.source, self.sink = MR(domain, ROUND, access), MR(domain, ROUND, access)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
        self.pair = QP(domain, QPInitAttr(qp_type=IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=cap))
        psn = random.randrange(1 << 24)
        self.peer = channel.exchange({"qpn": self.pair.qp_num, "psn": psn, "gid": context.query_gid(1, gid_index).gid,
                                      "source": [self.source.buf, self.source.rkey],
                                      "sink": [self.sink.buf, self.sink.rkey]})
        route = GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=gid_index)
        route.hop_limit = 64
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access
        self.pair.to_init(attr)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attr.path_mtu = IBV_MTU_1024
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = self.peer["qpn"], self.peer["psn"], psn
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 8
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        self.pair.to_rtr(attr)
        self.pair.to_rts(attr)
        self.keep = context, domain

    def send(self, operation: str, offset: int, size: int) -> None:
        here = self.sink if operation == "read" else self.source
        request = SendWR(num_sge=1, sg=[SGE(here.buf + offset, size, here.lkey)], opcode=OPCODES[operation],
                         send_flags=IBV_SEND_SIGNALED)
        if operation != "send":
            address, rkey = self.peer["source" if operation == "read" else "sink"]
            request.set_wr_rdma(rkey, address + offset)
        self.pair.post_send(request)

    def receive(self, _: str, offset: int, size: int) -> None:
        self.pair.post_recv(RecvWR(num_sge=1, sg=[SGE(self.sink.buf + offset, size, self.sink.lkey)]))

    def all_of(self, post, operation: str, chunk: int) -> None:
        """A whole round, chunk by chunk."""
        offsets = iter(range(0, ROUND, chunk))
        under_way = 0
        while True:
            for offset in offsets:
                post(operation, offset, min(chunk, ROUND - offset))
                under_way += 1
                if under_way == DEPTH:
                    break
            if under_way == 0:
                return
            length, completions = self.queue.poll(DEPTH)
            for completion in completions:
                assert completion.status == IBV_WC_SUCCESS, f"completed with status {completion.status}"
            under_way -= length
            if length == 0:
                time.sleep(0.0005)


def bytes_of(memory: MR) -> memoryview:
    return memoryview((ctypes.c_uint8 * ROUND).from_address(memory.buf)).cast("B")


def sha256(memory: MR) -> str:
    return hashlib.sha256(bytes_of(memory)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("operation", choices=OPCODES)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--gid", type=int, required=True)
    parser.add_argument("--megabytes", type=int, required=True)
    parser.add_argument("--chunk", type=int, default=1 << 20)
    options = parser.parse_args()
    operation, connects = options.operation, options.address is not None
    channel = Channel(options.address)
    end = End(channel, options.gid)
    rounds = -(-options.megabytes * 1_000_000 // ROUND)
    seconds = 0.0
    for number in range(rounds):
        bytes_of(end.source)[:] = random.Random(f"{connects} {number}").randbytes(ROUND)
        bytes_of(end.sink)[:] = bytes(ROUND)
        channel.exchange("ready")
        begin = time.monotonic()
        if connects or operation == "both":
            end.all_of(end.send, operation, options.chunk)
        elif operation == "send":
            end.all_of(end.receive, operation, options.chunk)
        channel.exchange("done")
        seconds += time.monotonic() - begin
        sent, received = sha256(end.source), sha256(end.sink)
        theirs = channel.exchange([sent, received])
        filled = operation == "both" or connects == (operation == "read")
        if filled and received != theirs[0]:
            print(f"round {number}: what arrived is not what was sent")
            return 1
        if operation == "both" or connects != (operation == "read"):
            assert theirs[1] == sent, "the peer did not get what we sent"
    moved = rounds * ROUND * (2 if operation == "both" else 1)
    print(f"{operation}: {moved / 1e6:.0f} MB in {seconds:.1f} s, {moved / 1e6 / seconds:.0f} MB/s, SHA-256 equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
