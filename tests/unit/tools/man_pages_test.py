#!/usr/bin/python3
"""Whether the manual pages have what users can type: each option that --help prints, each command that is registered,
each member that the configuration's reader knows; and nothing else.

    man_pages_test.py SOURCE_FOLDER NAME=PROGRAM...

A page whose program is not among the arguments is a failure, and so is one that nothing here looks at.
"""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path()
PROGRAMS: dict[str, str] = {}
PAGES = {"drcollect": "8", "drcompile": "1", "drexporter": "8", "drgen": "1", "drnic": "8", "ovs-dr-unixctl": "7",
         "ovs-vswitchd-dr": "8", "softnic.json": "5"}
# As the first words of a line of help: "-h,--help  …", "-p, --private-key=FILE  …", "-vSPEC, --verbose=SPEC  …".
OPTIONS_OF_HELP = re.compile(r"^\s+(-{1,2}[A-Za-z][\w-]*(?:[=\[][^\s,]*)?(?:, ?-{1,2}[A-Za-z][\w-]*)*)", re.MULTILINE)


def page(name: str) -> str:
    return (SOURCE / "docs" / "man" / f"{name}.{PAGES[name]}").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^\.S[hs] {re.escape(title)}\n(.*?)(?=^\.S[hs] |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {title}"
    return found.group(1)


def items(text: str, macro: str) -> set[str]:
    """The words that a macro marks in the heads of list items."""
    heads = re.findall(r"^\.It (.*)$", text, re.MULTILINE)
    return {word for head in heads for word in re.findall(rf"\b{macro} (\S+)", head)}


def options_of_page(text: str) -> set[str]:
    return {"-" + word for word in items(text, "Fl")}


def options_of_help(text: str) -> set[str]:
    found = set()
    for words in OPTIONS_OF_HELP.findall(text):
        for word in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", words):
            found.add(word if word.startswith("--") else word[:2])
    return found


def help_of(name: str, *command: str) -> str:
    done = subprocess.run([PROGRAMS[name], *command, "--help"], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Programs(unittest.TestCase):
    def test_each_page_is_looked_at(self) -> None:
        found = {path.name for path in (SOURCE / "docs" / "man").glob("*.[1-9]")}
        self.assertEqual(found, {f"{name}.{number}" for name, number in PAGES.items()})
        installed = (SOURCE / "docs" / "man" / "meson.build").read_text(encoding="utf-8")
        self.assertEqual(found, set(re.findall(r"'([^']+)'", installed)))

    def test_the_options_are_those_of_the_help(self) -> None:
        for name in ("drcompile", "drexporter", "drgen"):
            with self.subTest(name):
                options = options_of_help(help_of(name))
                self.assertIn("--help", options)
                self.assertEqual(options, options_of_page(page(name)))

    def test_the_options_of_drcollect_are_those_of_its_commands(self) -> None:
        commands = re.findall(r"^  (\w+) {2,}", help_of("drcollect").split("Subcommands:")[1], re.MULTILINE)
        text = page("drcollect")
        self.assertEqual(set(commands), items(section(text, "DESCRIPTION"), "Cm"))
        options = set().union(*(options_of_help(help_of("drcollect", command)) for command in commands))
        self.assertIn("--listen", options)
        self.assertEqual(options, options_of_page(text))

    def test_each_command_of_drnic_has_its_options(self) -> None:
        help_text, text = help_of("drnic"), page("drnic")
        commands = re.findall(r"^  (\w+) {2,}", help_text.split("Subcommands:")[1], re.MULTILINE)
        self.assertGreater(len(commands), 5)
        self.assertEqual({f"drnic {command}" for command in commands},
                         set(re.findall(r"^\.Ss (.*)", text, re.MULTILINE)))
        self.assertEqual(options_of_help(help_text), options_of_page(section(text, "DESCRIPTION")))
        for command in commands:
            with self.subTest(command):
                self.assertEqual(options_of_help(help_of("drnic", command)),
                                 options_of_page(section(text, f"drnic {command}")))


class Daemon(unittest.TestCase):
    def sources(self, pattern: str, *folders: str) -> set[str]:
        """What stands in the first group, in all C and C++ sources of these folders, or in these files."""
        found = set()
        for folder in folders:
            path = SOURCE / folder
            for file in [path] if path.is_file() else sorted(path.rglob("*.c*")):
                found |= set(re.findall(pattern, file.read_text(encoding="utf-8")))
        self.assertTrue(found, f"nothing like {pattern} in {folders}")
        return found

    def test_the_daemons_options_are_those_of_its_help(self) -> None:
        self.assertEqual(options_of_help(help_of("ovs-vswitchd-dr")),
                         options_of_page(section(page("ovs-vswitchd-dr"), "Command line")))

    def test_options_of_interfaces_and_choices_are_those_that_are_read(self) -> None:
        text = page("ovs-vswitchd-dr")
        self.assertEqual(self.sources(r'smap_get\w*\(args, "(\w+)"', "ctrl/shim/netdev_dr_options.c"),
                         items(section(text, "Interfaces of type dr"), "Cm"))
        self.assertEqual(self.sources(r'"(dr-[a-z-]+)"', "ctrl/shim/options.c"), items(section(text, "Choices"), "Cm"))

    def test_environment_variables_are_those_that_are_read(self) -> None:
        read = self.sources(r"(?:getenv\(\"|\$\{)(OVSDR_\w+)", "ctrl/ovs-vswitchd.in", "ctrl", "datapath", "offload")
        self.assertEqual(read, items(section(page("ovs-vswitchd-dr"), "ENVIRONMENT"), "Ev"))

    def test_unixctl_commands_and_their_options_are_those_that_are_registered(self) -> None:
        registered = dict(self.pairs(r'unixctl_command_register\("(dr/[\w-]+)",\s*"([^"]*)"'))
        heads = dict(re.findall(r"^\.It Ic (dr/[\w-]+)(.*)$", page("ovs-dr-unixctl"), re.MULTILINE))
        self.assertEqual(registered.keys(), heads.keys())
        for command, usage in registered.items():
            with self.subTest(command):
                self.assertEqual(set(re.findall(r"\[(-\w|\w+)\]", usage)),
                                 {"-" + word for word in re.findall(r"Fl (\w)\b", heads[command])}
                                 | set(re.findall(r"Ar (\w+)", heads[command])))

    def pairs(self, pattern: str) -> list[tuple[str, str]]:
        text = "".join(file.read_text(encoding="utf-8") for file in sorted((SOURCE / "ctrl").rglob("*.c*")))
        found = re.findall(pattern, text)
        self.assertTrue(found)
        return found

    def test_members_of_the_configuration_are_those_that_its_reader_knows(self) -> None:
        members = self.sources(r'\.(?:find|require)\(\s*"(\w+)"', "datapath/ports/config.cpp")
        names = re.search(r"resource_names\{([^}]*)\}", (SOURCE / "datapath/steering/room.hpp").read_text())
        assert names
        limits = set(re.findall(r'"(\w+)"', names.group(1)))
        text = page("softnic.json")
        self.assertEqual(members | limits, items(text, "Cm"))
        self.assertEqual(limits, items(section(text, "Limits"), "Cm"))


if __name__ == "__main__":
    SOURCE = Path(sys.argv[1])
    PROGRAMS = dict(word.split("=", 1) for word in sys.argv[2:])
    unittest.main(argv=sys.argv[:1])
