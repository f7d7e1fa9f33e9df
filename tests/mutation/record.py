"""What is known of a run's breaks, in a file for the next piece of the run: of which sources they were drawn, how and
when, and who caught them."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from operators import Break

SOURCE = Path(__file__).resolve().parents[2]


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


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def state_of_sources(root: Path = SOURCE) -> str:
    """The commit; and where files that git knows differ from it, which contents those are."""
    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True).stdout
    changes = git("diff", "HEAD", "--binary")
    commit = git("rev-parse", "HEAD").decode().strip()
    return commit + (f" with changes {hashlib.sha256(changes).hexdigest()[:12]}" if changes else "")


class Record:
    """One draw: breaks of one state of the sources, by one seed and one set of options. Asked for another draw, its
    file is refused: figures of two draws do not add up to one."""

    def __init__(self, file: str | None, options: dict[str, object], *, again: bool = False) -> None:
        """`options`: what the draw depends on. Among them a `seed` of None is the file's, or a new one. With `again`,
        what is known is asked about once more, whatever it was drawn of and with."""
        self._file = Path(file) if file else None
        asked = {"sources": state_of_sources(), **options}
        if self._file and self._file.exists():
            self._head = json.loads(self._file.read_text())
            self._refuse_another(asked, again)
        elif again:
            sys.exit(f"mutation: no file {file}")
        else:
            if asked["seed"] is None:
                asked["seed"] = random.SystemRandom().randrange(2**32)
            self._head = {"drawn": asked, "begun": now(), "outcomes": []}
        self._outcomes = [Outcome.of(row) for row in self._head.pop("outcomes")]
        if again:
            self._head.setdefault("again", []).append({"begun": now(), **asked})
        self.seed: int = self._head["drawn"]["seed"]
        self.known_before = len(self.breaks())

    def _refuse_another(self, asked: dict[str, object], again: bool) -> None:
        drawn = self._head.get("drawn")
        if drawn is None:
            sys.exit(f"mutation: {self._file} does not say of which sources it was drawn: give another file")
        if again:
            return
        if "again" in self._head:
            sys.exit(f"mutation: {self._file} was asked about again, with other tests perhaps: give another file")
        other = [f"{name} {drawn.get(name)}, not {value}" for name, value in asked.items()
                 if drawn.get(name) != value and not (name == "seed" and value is None)]
        if other:
            sys.exit(f"mutation: {self._file} is another draw: {'; '.join(other)}. Give another file")

    def __str__(self) -> str:
        """Of what this was drawn, how and when."""
        drawn = self._head["drawn"]
        flags = [name.replace("_", "-") + ("" if value is True else f" {value}") for name, value in drawn.items()
                 if name not in ("sources", "areas", "breaks", "seed") and value not in (None, False)]
        lines = [f"drawn {self._head['begun']} to {self._head.get('ended', 'now')}: sources {drawn['sources']}",
                 f"seed {drawn['seed']}, {drawn['breaks']} breaks in {', '.join(drawn['areas'])}; "
                 f"options: {', '.join(flags) or 'none'}"]
        lines += [f"survivors asked again {each['begun']}: sources {each['sources']}"
                  for each in self._head.get("again", [])]
        if self.known_before:
            lines.append(f"{self.known_before} breaks were known from an earlier call")
        return "\n".join(lines)

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
        self._head["ended"] = now()
        if self._file:
            rows = [outcome.row() for outcome in self._outcomes]
            self._file.write_text(json.dumps({**self._head, "outcomes": rows}, indent=1) + "\n")
