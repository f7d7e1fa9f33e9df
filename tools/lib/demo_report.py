"""The demo's report as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo import Phase, Report


def _result(phase: Phase) -> str:
    result = phase.result
    if "sent" in result:
        return f"{result['received']} of {result['sent']} answered"
    text = f"{result['megabits_per_second']:.0f} Mb/s"
    if not result["packets"]:
        return text
    unread = f", {result['unread']} unread" if result["unread"] else ""
    return f"{text}, {result['lost']} of {result['packets']} lost{unread}"


def _phases(report: Report) -> None:
    print("\nTraffic, and who carried it (iperf3: from its first second on)")
    print(f"  {'':38} {'':42} {'packets in':>11} {'slow path':>10} {'(of it RST)':>11} {'NIC':>10}")
    for phase in report.phases:
        print(f"  {phase.name:38} {_result(phase):42} {phase.packets:11} {phase.slow_path_packets:10} "
              f"{phase.resets:11} {1 - phase.slow_path_share:10.4%}")


def _vports(report: Report) -> None:
    print("\nvports, as the switch sees them")
    print(f"  {'guest':8} {'vport':>6} {'from it: packets':>17} {'bytes':>14} {'to it: packets':>17} {'bytes':>14} "
          f"{'dropped':>8}")
    for port in report.vports:
        print(f"  {port['guest']:8} {port['vport']:6} {port['received_packets']:17} {port['received_bytes']:14} "
              f"{port['sent_packets']:17} {port['sent_bytes']:14} {port['dropped']:8}")


def _megaflows(report: Report) -> None:
    print(f"\nOffloaded megaflows and their DR rules ({len(report.megaflows)})")
    for flow in report.megaflows:
        print(f"  ufid:{flow['ufid']} packets:{flow['packets']} bytes:{flow['bytes']} "
              f"offloaded:{flow['offloaded']} dp:{flow['dp']}")
        for line in str(flow["rules"]).splitlines():
            print(f"    {line}")
    if report.reasons:
        print("\nMegaflows by reason (dr/explain)")
        for line in report.reasons.splitlines():
            print(f"  {line}")


def print_report(report: Report) -> None:
    _phases(report)
    _vports(report)
    _megaflows(report)
    if report.problems:
        print("\nNot as it should be:")
        for problem in report.problems:
            print(f"  {problem}")
    else:
        print("\ndemo: all is well")
