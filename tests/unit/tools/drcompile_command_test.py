#!/usr/bin/python3
"""drcompile as one calls it: files and standard input, options, exit codes, on megaflows that OVN made.

    drcompile_command_test.py PROGRAM
"""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

MEGAFLOWS = Path(__file__).resolve().parent / "data" / "ovn_megaflows.txt"
ALL_MEGAFLOWS = Path(__file__).resolve().parents[2] / "differential" / "ovn_megaflows.txt"
# The hypervisors' uplinks, in a run of ours and in one of stock OVS.
UPLINKS = "--uplink", "uplink", "--uplink", "uplink-p"
PROGRAM = ""

FLOW = "in_port(vm1),eth(),eth_type(0x1234), packets:1, bytes:60, used:never, actions:vm2\n"
UNKNOWN = "in_port(vm1),eth(),eth_type(0x1234), actions:nonsense(1)\n"


def drcompile(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)


class RealMegaflows(unittest.TestCase):
    lines: dict[int, str]
    found: dict

    @classmethod
    def setUpClass(cls) -> None:
        text = MEGAFLOWS.read_text(encoding="utf-8").splitlines()
        cls.lines = {number: line for number, line in enumerate(text, 1) if not line.startswith("#")}
        done = drcompile("-j", str(MEGAFLOWS))
        assert done.returncode == 0, done.stderr
        cls.found = json.loads(done.stdout)

    def test_each_line_is_understood(self) -> None:
        self.assertEqual([flow["line"] for flow in self.found["megaflows"]], list(self.lines))
        self.assertEqual(self.found["faults"], [])

    def test_ports_are_those_of_ovn(self) -> None:
        others = {port["name"] for port in self.found["ports"] if port["vport"] is None}
        self.assertEqual(others, {"br-ex", "genev_sys_6081", "vxlan_sys_4789"})
        self.assertIn({"name": "uplink", "vport": 65535}, self.found["ports"])

    def test_switching_and_routing_without_ct_is_offloaded(self) -> None:
        names = {flow["line"]: flow for flow in self.found["megaflows"]}
        others = ("eth_type(0x0806)", "nd(", "recirc_id(0x", "recirc(", "ct(", "ct_clear", "userspace", "tnl_", "meter",
                  "br-ex")
        plain = [number for number, line in self.lines.items()
                 if "in_port(vm" in line and not any(word in line for word in others)]
        self.assertGreaterEqual(len(plain), 8)
        for number in plain:
            self.assertTrue(names[number]["offloaded"], self.lines[number] + str(names[number]))

    def test_what_comes_through_tunnels_is_offloaded(self) -> None:
        both = json.loads(drcompile("-j", *UPLINKS, str(MEGAFLOWS)).stdout)
        found = {flow["line"]: flow for flow in both["megaflows"]}
        others = ("recirc_id(0x", "ct(", "ct_state(0x", "userspace", "slow_path", "eth_type(0x0806)", "nd(")
        tunnels = {number: line for number, line in self.lines.items()
                   if ("tnl_pop(" in line or "_sys_" in line.split("in_port(")[1].split(")")[0])
                   and not any(word in line for word in others)}
        self.assertGreaterEqual(len(tunnels), 2)
        for number, line in tunnels.items():
            self.assertTrue(found[number]["offloaded"], line + str(found[number]))
            if "tnl_pop(" in line:
                self.assertIn("dest_table tunnel port", found[number]["actions"])
            else:
                self.assertIn("genev_sys_6081", found[number]["table"]["tunnel_port"])
                self.assertTrue(found[number]["actions"].startswith("count, decapsulate"), found[number])

    def test_ct_arp_and_userspace_are_named(self) -> None:
        for flow in self.found["megaflows"]:
            line = self.lines[flow["line"]]
            actions = line.split("actions:", 1)[1]
            for word, reason in (("ct_clear", "unsupported action: ct_clear"), ("ct(", "unsupported action: ct")):
                if actions.startswith(word):
                    self.assertIn(reason, flow["reasons"], line)
            if actions.startswith("userspace("):
                self.assertIn("unsupported action: userspace", flow["reasons"], line)
            if "arp(" in line and "op=1/0xff" in line:
                self.assertTrue(any(reason.startswith("unsupported match: arp_op") for reason in flow["reasons"]), line)

    def test_the_summary_counts_them(self) -> None:
        summary = self.found["summary"]
        offloaded = sum(flow["offloaded"] for flow in self.found["megaflows"])
        self.assertEqual((summary["megaflows"], summary["offloaded"]), (len(self.lines), offloaded))
        text = drcompile("--summary", str(MEGAFLOWS)).stdout
        self.assertIn(f"\nmegaflows: {len(self.lines)}, offloaded: {offloaded} (", text)
        for row in summary["reasons"]:
            self.assertIn(f"{row['megaflows']:>10} {row['only']:>10}  {row['reason']}: {row['detail']}\n", text)

    def test_the_text_says_the_same(self) -> None:
        text = drcompile(str(MEGAFLOWS)).stdout
        for flow in self.found["megaflows"]:
            head = f"{MEGAFLOWS}:{flow['line']}: "
            for reason in flow.get("reasons", []):
                self.assertIn(f"  {reason}\n", text.split(head, 1)[1].split(str(MEGAFLOWS))[0])
            self.assertIn(head + ("offloaded\n" if flow["offloaded"] else "not offloaded\n"), text)


    def test_meters_are_what_one_says_they_are(self) -> None:
        metered = [number for number, line in self.lines.items()
                   if "in_port(vm" in line and "actions:meter(0),set(ipv4(tos=" in line and "recirc_id(0)" in line]
        self.assertGreaterEqual(len(metered), 1)
        with_meter = json.loads(drcompile("-j", "--meter", "0", str(MEGAFLOWS)).stdout)
        found = {flow["line"]: flow for flow in with_meter["megaflows"]}
        unknown = {flow["line"]: flow for flow in self.found["megaflows"]}
        for number in metered:
            self.assertEqual(unknown[number]["reasons"], ["unsupported action: meter: nobody has set number 0"])
            self.assertTrue(found[number]["offloaded"], found[number])
            self.assertIn("meter 0 (1), dest_table (exceeding: drop; set ip_dscp=", found[number]["actions"])


def is_plain(line: str) -> bool:
    """Without connection tracking, ARP, ND and userspace: what the NIC is asked to carry."""
    words = ("ct(", "ct_state(0x", "ct_clear", "eth_type(0x0806)", "nd(", "userspace", "slow_path")
    return not any(word in line for word in words)


class AllMegaflows(unittest.TestCase):
    """All that OVN made, by scenario: the share that is asked for, and why the others stay in software."""

    lines: dict[int, str]

    @classmethod
    def setUpClass(cls) -> None:
        text = ALL_MEGAFLOWS.read_text(encoding="utf-8").splitlines()
        cls.lines = {number: line for number, line in enumerate(text, 1) if line and not line.startswith("#")}
        assert len(cls.lines) == 364

    def found(self, profile: str) -> dict[int, dict]:
        """By line."""
        done = drcompile("-j", "--profile", profile, *UPLINKS, str(ALL_MEGAFLOWS))
        self.assertEqual(done.returncode, 0, done.stderr)
        return {flow["line"]: flow for flow in json.loads(done.stdout)["megaflows"]}

    def test_of_118_plain_ones_all_but_25_are_offloaded(self) -> None:
        plain = {number for number, line in self.lines.items() if is_plain(line)}
        self.assertEqual(len(plain), 118)
        logged = {number for number, line in self.lines.items() if "userspace" in line and "actions:sample(" in line}
        for profile, offloaded in (("cx5", 92), ("cx6dx", 95), ("cx7", 95)):
            found = self.found(profile)
            self.assertEqual(found.keys(), self.lines.keys())
            taken = {number for number, flow in found.items() if flow["offloaded"]}
            self.assertEqual((profile, len(taken)), (profile, offloaded))
            # ct, ARP, ND and userspace are not the NIC's; of a logged ACL's packets it makes copies for software.
            self.assertEqual(len(taken - plain), 2)
            self.assertLessEqual(taken - plain, logged)

    def test_the_25_have_these_reasons(self) -> None:
        found = self.found("cx6dx")
        left = [found[number]["reasons"] for number, line in self.lines.items()
                if is_plain(line) and not found[number]["offloaded"]]
        self.assertEqual(Counter(reason.split(" (")[0] for reasons in left for reason in reasons), {
            "unsupported action: tnl_push with an outer UDP checksum": 18,
            "unsupported action: hash": 2,
            "unsupported match: dp_hash": 2,
            "unsupported action: meter: nobody has set number 0": 2,
            "output not offloaded: output to a port that is no dr port of this device: br-ex": 1,
        })
        limits = Counter(reason.split(" (")[0] for line, flow in self.found("cx5").items()
                         for reason in flow.get("reasons", [])
                         if is_plain(self.lines[line]) and reason.startswith("device limit"))
        self.assertEqual(limits, {"device limit: icmpv6_type": 3})

    def test_the_summary_counts_megaflows_by_reason(self) -> None:
        """The command of docs/drcompile.md."""
        text = drcompile("--summary", *UPLINKS, str(ALL_MEGAFLOWS)).stdout
        self.assertIn("\nmegaflows: 364, offloaded: 95 (26.1 %)\n", text)
        for every, only, reason in ((115, 60, "action: ct"), (108, 0, "match: ct_state"), (35, 15, "action: ct_clear"),
                                    (25, 18, "action: userspace"), (22, 0, "match: arp_op"), (3, 0, "match: nd_target"),
                                    (8, 8, "action: check_pkt_len (branches differ)"), (4, 2, "action: hash")):
            self.assertIn(f"{every:>10} {only:>10}  unsupported {reason}\n", text)


class Command(unittest.TestCase):
    def test_a_line_that_is_not_understood_is_named_and_others_go_on(self) -> None:
        done = drcompile("-", stdin=FLOW + UNKNOWN + "\n# comment\nflow-dump from the main thread:\n" + FLOW)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, 'drcompile: stdin:2: not an action: "nonsense(1)"\n')
        self.assertIn("\nstdin:1: offloaded\n", done.stdout)
        self.assertIn("\nstdin:6: offloaded\n", done.stdout)
        faults = json.loads(drcompile("-j", stdin=UNKNOWN).stdout)["faults"]
        self.assertEqual(faults, [{"file": "stdin", "line": 1, "what": 'not an action: "nonsense(1)"'}])

    def test_a_file_that_is_not_there_is_named_and_others_are_read(self) -> None:
        done = drcompile("/nonexistent/flows", "-", stdin=FLOW)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "drcompile: /nonexistent/flows: No such file or directory\n")
        self.assertIn("\nstdin:1: offloaded\n", done.stdout)
        self.assertEqual(drcompile("/").returncode, 1)

    def test_options_may_come_before_files(self) -> None:
        done = drcompile("--port", "vm1=7", "--uplink", "vm2", "--other", "x*", "-", stdin=FLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dr ports: vm1 = vport 7, vm2 = uplink\n", done.stdout)
        self.assertIn("source_port=0x7", done.stdout)
        self.assertIn("dest_vport 65535", done.stdout)

    def test_profiles_differ(self) -> None:
        pop = "in_port(vm1),eth(),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x1234)), actions:pop_vlan,vm2\n"
        offloaded = {profile: "stdin:1: offloaded" in drcompile("--profile", profile, stdin=pop).stdout
                     for profile in ("cx5", "cx6dx", "cx7")}
        self.assertEqual(offloaded, {"cx5": False, "cx6dx": True, "cx7": True})

    def test_outputs_to_mirrors_are_copies_of_their_own(self) -> None:
        flow = "in_port(vm1),eth(),eth_type(0x1234), actions:{}\n"
        flows = "".join(flow.format(actions)
                        for actions in ("vm2,stor0", "stor0", "trunc(128),stor0,vm2", "tap0", "stor1"))
        done = drcompile("-j", "--mirror", "stor1", "--mirror", "stor0", "--other", "tap*", stdin=flows)
        self.assertEqual(done.returncode, 0, done.stderr)
        both, alone, cut, tap, _ = json.loads(done.stdout)["megaflows"]
        self.assertIn("dest_vport 2, dest_table (copy to software: output to mirror 1, datapath port", both["actions"])
        self.assertTrue(alone["offloaded"])
        self.assertIn("(the first 128 bytes)", cut["actions"])
        self.assertFalse(tap["offloaded"])
        text = drcompile("--mirror", "stor1", "--mirror", "stor0", stdin=flows).stdout
        self.assertIn("\nstorage mirrors: stor0 = mirror 1, stor1 = mirror 0\nother ports: ", text)

    def test_a_mirror_that_is_in_no_line_is_named(self) -> None:
        done = drcompile("--mirror", "stor9", stdin=FLOW)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "drcompile: --mirror stor9: no megaflow names this port\n")

    def test_what_cannot_be_is_refused(self) -> None:
        for arguments in (["--profile", "cx4"], ["--port", "vm1"], ["--port", "vm1=0"], ["--nonsense"],
                          ["--port", "vm1=1", "--port", "vm2=1"], ["--port", "vm1=1", "--uplink", "vm1"],
                          ["--mirror", "a", "--mirror", "a"], ["--mirror", "vm1", "--uplink", "vm1"],
                          [part for number in range(9) for part in ("--mirror", f"stor{number}")]):
            done = drcompile(*arguments, stdin=FLOW)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertNotEqual(done.stderr, "", arguments)
            self.assertEqual(done.stdout, "", arguments)

    def test_help_says_what_it_reads_and_what_it_takes_for_a_port(self) -> None:
        done = drcompile("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("--profile", "--port", "--uplink", "--other", "--summary", "--json", "dpctl/dump-flows", "br-*"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
