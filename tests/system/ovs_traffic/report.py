"""What became of the megaflows of each test, and the table of all results in Markdown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable

from allowed_reasons import nothing_expected, why_allowed
from exceptions import PHYSICAL, STOCK_FAILS
from suite import Result

HEAD = """# OVS's own traffic tests on ovs-dr

`tests/system/ovs-system-traffic --all --table docs/ovs-system-traffic.md` wrote this page. It runs the whole system
suite of {release} (`system-traffic.at` and four small files) twice: with stock OVS's userspace datapath, and with
ovs-dr, each veth a vport of the soft NIC and a port of type dr, hardware offload on. What stock does not pass here is
not asked of ovs-dr.

{totals}

*Offloaded* counts the megaflows of dr ports and tunnel ports that were in the NIC, of all that there were (`dr/explain`
at the test's end). Most of these tests are of connection tracking and NAT, which stay in software; so do ARP and what
NORMAL floods to the host as well. For which reasons a megaflow of each test may stay there is in
`tests/system/ovs_traffic/allowed_reasons.py`: another reason, or a test that never has one in the NIC, is a failure.

| test | title | stock | ovs-dr | offloaded | remark |
|---:|---|---|---|---:|---|
"""

# A condition in system-traffic.at that skips, and what it means.
SKIPS = (
    (r"OVS_CHECK_(?:MIN_KERNEL|KERNEL_EXCL)|CHECK_L3L4_CONNTRACK_REASM", "OVS runs it with the kernel's datapath only"),
    (r"CHECK_CONNTRACK_LOCAL_STACK", "OVS's userspace datapath does not track connections of the host's own ports"),
    (r"OVS_CHECK_8021AD", "the kernel here has no VLAN devices"),
    (r"HAVE_(\w+) = no", "{} is not installed"),
)


@dataclass(frozen=True)
class Accounts:
    """What dr/explain --json said at each test's end, by test."""

    told: dict[int, dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Accounts:
        return cls({int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))
                    if file.stem.isdecimal() and file.stat().st_size > 0})

    def offloaded(self, *tests: int) -> int:
        """Megaflows in the NIC then, of these tests or of all."""
        return sum(self.told[test]["megaflows"]["offloaded"] for test in tests or self.told)

    def in_software(self, *tests: int) -> int:
        """Megaflows that devices were offered and did not take, each once."""
        return sum(self.told[test]["megaflows"][word] for test in tests or self.told for word in ("rejected", "failed"))

    def share(self, test: int) -> str:
        if test not in self.told:
            return ""
        return f"{self.offloaded(test)} of {self.offloaded(test) + self.in_software(test)}"

    def unexpected(self, tests: Iterable[int]) -> list[str]:
        """Reasons that are not allowed, with the test, and which of these tests never had a megaflow in the NIC."""
        wrong = []
        for test in tests:
            rows = self.told[test]["reasons"] if test in self.told else []
            wrong += [f"test {test}: {row['total']} megaflows: {row['reason']}: {row['detail']}" for row in rows
                      if row["reason"] != "offloaded" and why_allowed(test, row["reason"], row["detail"]) is None]
            if not nothing_expected(test) and not any(row["reason"] == "offloaded" for row in rows):
                wrong.append(f"test {test}: no megaflow was in the NIC")
        return wrong


def why_skipped(where: str, source: Path) -> str:
    """What the condition at FILE:LINE asks for."""
    file, _, line = where.partition(":")
    lines = (source / "tests" / file).read_text().splitlines() if (source / "tests" / file).is_file() else []
    condition = lines[int(line) - 1] if line.isdecimal() and int(line) <= len(lines) else ""
    for pattern, meaning in SKIPS:
        if found := re.search(pattern, condition):
            return meaning.format(*(group.replace("_", " ") for group in found.groups()))
    return f"skips at {where}: {condition.strip()}"


def remark(test: int, stock: Result, ours: Result | None, source: Path) -> str:
    if stock.word == "skipped":
        return why_skipped(stock.where, source)
    if not stock.passed:
        return STOCK_FAILS.get(test, f"fails with stock, at {stock.where}")
    assert ours is not None
    if not ours.passed:
        return PHYSICAL.get(test, f"at {ours.where}")
    return "stock's or ours passed when run again, alone" if stock.again or ours.again else ""


def table(titles: dict[int, str], stock: dict[int, Result], ours: dict[int, Result], accounts: Accounts,
          ovs: Path) -> str:
    """The page."""
    both = sum(ours[test].passed for test in ours)
    totals = (f"Of {len(titles)} tests stock passes {len(ours)}, and ovs-dr passes {both} of these; "
              f"stock skips {sum(result.word == 'skipped' for result in stock.values())}. "
              f"Megaflows: {accounts.offloaded()} offloaded, {accounts.in_software()} in software.")
    release = re.search(r"AC_INIT\(openvswitch, ([\d.]+)", (ovs / "source" / "configure.ac").read_text())
    rows = []
    for test, title in titles.items():
        cells = (str(test), title, stock[test].word, ours[test].word if test in ours else "", accounts.share(test),
                 remark(test, stock[test], ours.get(test), ovs / "source"))
        rows.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n")
    return HEAD.format(release=f"OVS {release.group(1)}" if release else "OVS", totals=totals) + "".join(rows)
