#!/usr/bin/python3
"""What is known of a draw of breaks says what it was drawn of, and is not taken for another draw's."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mutation"))

import record  # noqa: E402
from operators import Break  # noqa: E402

CLEAN, CHANGED = "a" * 40, "a" * 40 + " with changes 123456789abc"
OPTIONS = {"seed": 7, "breaks": 2, "near": False, "objects": None, "areas": ["offload"]}
BREAK = Break(Path("offload/dr/flow.cpp"), 5, "check", "if (one) two();", "if (true) two();")


class DrawnBefore(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "draw.json"
        self.draw().add(record.Outcome("offload", BREAK, ""))

    def draw(self, sources: str = CLEAN, *, again: bool = False, **others: object) -> record.Record:
        with mock.patch.object(record, "state_of_sources", return_value=sources):
            return record.Record(str(self.file), OPTIONS | others, again=again)

    def assert_refused(self, what: str, **call: object) -> None:
        with self.assertRaises(SystemExit) as refused:
            self.draw(**call)
        self.assertIn(what, str(refused.exception))

    def test_the_same_draw_goes_on(self) -> None:
        self.assertTrue(self.draw().knows(BREAK))
        self.assertEqual(self.draw(seed=None).seed, 7, "the file's")

    def test_another_commit_changes_or_options_are_refused(self) -> None:
        self.assert_refused(f"sources {CLEAN}, not {CHANGED}", sources=CHANGED)
        self.assert_refused("seed 7, not 8", seed=8)
        self.assert_refused("breaks 2, not 3", breaks=3)
        self.assert_refused("near False, not True", near=True)
        self.assert_refused("objects None, not 4", objects=4)
        self.assert_refused("areas ['offload'], not ['mkey']", areas=["mkey"])

    def test_a_file_that_does_not_say_of_what_it_was_drawn_is_refused(self) -> None:
        self.file.write_text(json.dumps({"seed": 7, "outcomes": []}))
        self.assert_refused("does not say")
        self.assert_refused("does not say", again=True)

    def test_survivors_are_asked_again_of_other_sources_and_that_is_told(self) -> None:
        asked = self.draw(sources=CHANGED, again=True)
        self.assertEqual([outcome.item for outcome in asked.survivors()], [BREAK])
        self.assertIn(f": sources {CHANGED}", str(asked))
        self.assertIn(f": sources {CLEAN}\n", str(asked))
        asked.write()
        self.assert_refused("asked about again")

    def test_the_summary_tells_when_and_of_what_was_drawn(self) -> None:
        text = str(self.draw())
        self.assertRegex(text, rf"drawn \d{{4}}-\d\d-\d\d \d\d:\d\d UTC to \d{{4}}-.*: sources {CLEAN}\n")
        self.assertIn("seed 7, 2 breaks in offload; options: none", text)
        self.assertIn("1 breaks were known from an earlier call", text)
        self.file.unlink()
        text = str(self.draw(near=True, objects=4))
        self.assertIn("options: near, objects 4", text)
        self.assertNotIn("earlier call", text)

    def test_a_draw_without_a_seed_gets_one_and_keeps_it(self) -> None:
        self.file.unlink()
        first = self.draw(seed=None)
        first.write()
        self.assertEqual(self.draw(seed=None).seed, first.seed)

    def test_breaks_that_can_be_made_no_more_are_forgotten(self) -> None:
        kept = self.draw()
        with contextlib.redirect_stdout(io.StringIO()):
            kept.forget_gone({"offload": []})
        self.assertFalse(kept.breaks())


class Sources(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "-q")
        (self.root / "known").write_text("one\n")
        self.git("add", "known")
        self.git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "one")

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.root, check=True)

    def test_a_commit_and_what_differs_from_it_are_other_states(self) -> None:
        clean = record.state_of_sources(self.root)
        self.assertRegex(clean, r"^[0-9a-f]{40}$")
        (self.root / "unknown").write_text("git does not know it, and no copy has it\n")
        self.assertEqual(record.state_of_sources(self.root), clean)
        states = {clean}
        for text in ("two\n", "three\n"):
            (self.root / "known").write_text(text)
            states.add(record.state_of_sources(self.root))
        self.assertEqual(len(states), 3)
        self.assertTrue(all(state.startswith(clean) for state in states))


if __name__ == "__main__":
    unittest.main()
