"""Parts of the project that are broken on purpose, and which tests are asked about each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Area:
    sources: list[str]        # globs
    near: list[str]           # names of meson tests: after those of the broken file's own folder
    conformance: list[str]    # modules of rdma-core's suite, asked last


AREAS = {
    "steering": Area(["datapath/steering/*.[ch]pp", "datapath/verbs/dr/dr_*.[ch]pp"],
                     ["steering", "verbs-dr-strictness", "verbs-nic-traffic", "rdma"], ["test_mlx5_dr"]),
    "mkey": Area(["datapath/rdma/mkey/*.[ch]pp", "datapath/rdma/memory/transfer.[ch]pp",
                  "datapath/ports/guarded_copy.[ch]pp",
                  "datapath/verbs/memory/mkey*.[ch]pp", "datapath/verbs/qp/qp_rdma_mkey.cpp"],
                 ["mkey", "rdma", "verbs"], ["test_mlx5_mkey"]),
    "signature": Area(["datapath/signature/*.[ch]pp"], ["signature", "mkey", "verbs"], ["test_mlx5_mkey"]),
    "transport": Area(["datapath/rdma/roce/*.[ch]pp"], ["roce", "mkey", "verbs"],
                      ["test_qp", "test_qpex", "test_atomic", "test_cq_events"]),
}
# What makes rules of megaflows. Not what only operators read of it: no packet can tell. Nor what makes other rules:
# RoCE's.
PROVED = "offload"
AREAS[PROVED] = Area(["offload/dr/compile/[!p]*.cpp", "offload/dr/compile/plan.cpp", "offload/dr/install/[!pr]*.cpp",
                      "offload/dr/install/pipeline.cpp", "offload/dr/eswitch_flows.cpp", "offload/dr/backlog.cpp",
                      "offload/dr/megaflow_store.cpp"], [], [])
