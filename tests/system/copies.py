"""What tests of the software branch say in the same words: what dr/copies tells, and streams that arrive once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Sequence

from lab.command import wait_until
from lab.lab import Lab
from lab.traffic import stream_number


@dataclass(frozen=True)
class Copies:
    """Of the lab's only device."""

    copies: int         # that the NIC took
    done: int
    lost: int           # that found the queue full
    waiting: int        # in the queue
    errors: int
    without_work: int   # whose megaflows had gone
    restarts: int

    def __sub__(self, before: "Copies") -> "Copies":
        return Copies(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


def copies(lab: Lab) -> Copies:
    """A stock switch has none."""
    if lab.kind != "dr":
        return Copies(0, 0, 0, 0, 0, 0, 0)
    [device] = json.loads(lab.switch.appctl("dr/copies", "-j"))["devices"]
    return Copies(**{name: device[name] for name in Copies.__dataclass_fields__})


def samplers(lab: Lab) -> list[dict[str, object]]:
    """For whom copies came up, and at which rate."""
    [device] = json.loads(lab.switch.appctl("dr/copies", "-j"))["devices"]
    return device["samplers"]


def wait_done(lab: Lab) -> Copies:
    """Nothing is under way between the NIC and software."""
    wait_until(lambda: copies(lab).waiting == 0, 10, "each copy has been done or lost")
    return copies(lab)


def numbers(frames: Sequence[bytes]) -> list[int]:
    """Of a stream's frames, in order."""
    return sorted(number for frame in list(frames) if (number := stream_number(frame)) is not None)
