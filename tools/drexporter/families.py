"""Metric families by name: what they are, and the samples that were put into them in one scrape.

The tables of daemon_metrics.py and softnic_metrics.py say what there is; a family comes into being when something is
put into it, and a name that is in no table is a KeyError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


@dataclass(frozen=True)
class Kind:
    type: str                # of KINDS
    help: str
    labels: tuple[str, ...] = ()


def counter(text: str, *labels: str) -> Kind:
    return Kind("counter", text, labels)


def gauge(text: str, *labels: str) -> Kind:
    return Kind("gauge", text, labels)


def histogram(text: str, *labels: str) -> Kind:
    return Kind("histogram", text, labels)


class Families:
    def __init__(self, kinds: dict[str, Kind]) -> None:
        self._kinds = kinds
        self._families: dict[str, Metric] = {}

    def _family(self, name: str) -> Metric:
        if name not in self._families:
            kind = self._kinds[name]
            self._families[name] = KINDS[kind.type](name, kind.help, labels=kind.labels)
        return self._families[name]

    def put(self, name: str, value: float, *labels: object) -> None:
        self._family(name).add_metric([str(label) for label in labels], value)

    def put_histogram(self, name: str, bounds: Iterable[float], buckets: Iterable[int], total: float,
                      *labels: object) -> None:
        """`buckets`: each for itself; the last one has no bound."""
        counted, cumulative = 0, []
        for bound, bucket in zip([*map(str, bounds), "+Inf"], buckets):
            counted += bucket
            cumulative.append((bound, counted))
        self._family(name).add_metric([str(label) for label in labels], buckets=cumulative, sum_value=total)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())
