"""Where the worker's cycles go: perf samples of its thread while it forwards, by function and by stage."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

# The first pattern that a function's name fits names its stage. What fits none is listed as "other".
STAGES = [
    ("port: receive (net_pcap copies each frame)", r"eth_pcap_rx|eth_null_rx|pktmbuf_alloc|mempool"),
    ("port: transmit (net_null frees each frame)", r"eth_null_tx|eth_pcap_tx|pktmbuf_free"),
    ("steering: headers (first touch, parse, mask)", r"soft::parse|read_headers|read_whole"),
    ("steering: flow cache look-up", r"FlowCache|Lane::Impl::process"),
    ("steering: rewriting and meters", r"EditList|Lane::Impl::edit|soft::(\(anonymous namespace\)::)?locate|Meter::"),
    ("steering: actions and counters", r"Lane::Impl::|CounterBulk"),
    ("steering: tables (cache misses)", r"Walk::|RuleTable"),
    ("worker, vport paths", r"Worker::|VportPath::|Sleeper|DpdkPort|Lane::"),
]


def threads_of(pid: int) -> dict[int, str]:
    """Thread id -> name. Threads may end meanwhile."""
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            threads[int(task.name)] = (task / "comm").read_text().strip()
    return threads


def worker_thread(daemon_pid: int, name: str = "softnic-0") -> int:
    """The worker's thread id. LookupError when there is none of that name."""
    for thread, its_name in threads_of(daemon_pid).items():
        if its_name == name:
            return thread
    raise LookupError(f"process {daemon_pid} has no thread {name}")


def sample(thread: int, seconds: float, data: Path) -> dict[str, float]:
    """Function name -> share of the samples (0 to 1), largest first."""
    if not shutil.which("perf"):
        raise FileNotFoundError("perf (Debian's package linux-perf)")
    subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "4999", "-t", str(thread), "-o", str(data),
                    "--", "sleep", str(seconds)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report = subprocess.run(["perf", "report", "-q", "--stdio", "--no-children", "-g", "none", "-F", "overhead,symbol",
                             "-i", str(data)], check=True, text=True, capture_output=True).stdout
    shares: dict[str, float] = {}
    for percent, name in re.findall(r"^\s*([0-9.]+)%\s+\[.\]\s+(.+?)\s*$", report, re.MULTILINE):
        shares[name] = shares.get(name, 0) + float(percent) / 100
    for percent, name in re.findall(r"^\s*([0-9.]+)%\s+\[k\]\s+(.+?)\s*$", report, re.MULTILINE):
        shares["kernel"] = shares.get("kernel", 0) + float(percent) / 100
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def by_stage(shares: dict[str, float]) -> dict[str, float]:
    stages = {name: 0.0 for name, _ in STAGES} | {"other": 0.0}
    for function, share in shares.items():
        stage = next((name for name, pattern in STAGES if re.search(pattern, function)), "other")
        stages[stage] += share
    return {name: share for name, share in stages.items() if share >= 0.005}
