"""One scrape: asks both sides, and has for each whether it answered. Who does not answer has no other metrics then."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Callable, Iterator

import daemon_metrics
import softnic_metrics
from control import Daemon, NoAnswer, SoftNic
from families import Families, gauge
from prometheus_client.core import Metric

KINDS = {
    "ovsdr_up": gauge("Whether it answered.", "target"),
    "ovsdr_scrape_duration_seconds": gauge("How long it took to answer.", "target"),
    **daemon_metrics.KINDS,
    **softnic_metrics.KINDS,
}


class Collector:
    """Threads: any; only one scrape at a time is under way, so that many who ask do not press the daemon."""

    def __init__(self, daemon: Daemon, softnic: SoftNic | None) -> None:
        self._targets: list[tuple[str, Callable[[], list[Any]], Callable[..., None]]] = [
            ("daemon", lambda: daemon.ask(*daemon_metrics.QUESTIONS), daemon_metrics.put)]
        if softnic is not None:
            self._targets.append(("softnic", lambda: softnic.ask(*softnic_metrics.QUESTIONS), softnic_metrics.put))
        self._said: dict[str, str] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        own = Families(KINDS)
        found: list[Families] = [own]
        with self._lock:
            for target, ask, put in self._targets:
                begin = time.monotonic()
                families, trouble = self._families(ask, put)
                own.put("ovsdr_scrape_duration_seconds", time.monotonic() - begin, target)
                own.put("ovsdr_up", not trouble, target)
                if not trouble:
                    found.append(families)
                self._say(target, trouble)
        for families in found:
            yield from families

    @staticmethod
    def _families(ask: Callable[[], list[Any]], put: Callable[..., None]) -> tuple[Families, str]:
        """What one target says, or what is wrong with it."""
        families = Families(KINDS)
        try:
            put(families, *ask())
        except NoAnswer as error:
            return families, str(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Of another version than this one.
            return families, f"an answer that is not understood: {error!r}"
        return families, ""

    def _say(self, target: str, trouble: str) -> None:
        """Once, and when it is over."""
        if trouble != self._said.get(target, ""):
            print(f"drexporter: the {target}: {trouble or 'it answers again'}", file=sys.stderr, flush=True)
            self._said[target] = trouble
