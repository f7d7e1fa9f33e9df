"""What is known of a run's breaks, in a file for the next piece of the run."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from operators import Break


@dataclass
class Outcome:
    area: str
    item: Break
    catcher: str | None    # empty: it survived; None: it is no break

    def __str__(self) -> str:
        return f"{'caught by ' + self.catcher if self.catcher else 'SURVIVED'}: {self.area}: {self.item}"

    def row(self) -> dict[str, object]:
        return {"area": self.area, **vars(self.item), "file": str(self.item.file), "caught_by": self.catcher}

    @staticmethod
    def of(row: dict[str, object]) -> Outcome:
        item = {key: value for key, value in row.items() if key not in ("area", "caught_by")}
        return Outcome(row["area"], Break(**{**item, "file": Path(item["file"])}), row["caught_by"])


class Record:
    def __init__(self, file: str | None, seed: int | None) -> None:
        self._file = Path(file) if file else None
        known = json.loads(self._file.read_text()) if self._file and self._file.exists() else {"outcomes": []}
        self._outcomes = [Outcome.of(row) for row in known["outcomes"]]
        drawn = known.get("seed", random.SystemRandom().randrange(2**32))
        self.seed = drawn if seed is None else seed

    def forget_gone(self, breaks: dict[str, list[Break]]) -> None:
        """Finds the lines again, which may have moved; forgets breaks that can be made no more."""
        found = []
        for outcome in self._outcomes:
            same = [item for item in breaks.get(outcome.area, [])
                    if vars(item) | {"line": 0} == vars(outcome.item) | {"line": 0}]
            if same:
                outcome.item = min(same, key=lambda item: abs(item.line - outcome.item.line))
                found.append(outcome)
            else:
                print(f"gone: {outcome.item}")
        self._outcomes = found

    def breaks(self) -> list[Outcome]:
        return [outcome for outcome in self._outcomes if outcome.catcher is not None]

    def survivors(self) -> list[Outcome]:
        return [outcome for outcome in self._outcomes if outcome.catcher == ""]

    def knows(self, item: Break) -> bool:
        return any(outcome.item == item for outcome in self._outcomes)

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self.write()

    def write(self) -> None:
        if self._file:
            rows = [outcome.row() for outcome in self._outcomes]
            self._file.write_text(json.dumps({"seed": self.seed, "outcomes": rows}, indent=1) + "\n")
