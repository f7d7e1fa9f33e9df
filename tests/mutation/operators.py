"""Small breaks of C++ source, drawn without knowing what the code is for.

Each operator looks at one line and offers replacements for it. The line's number stays, so that a break that changes
nothing shows by an object file that is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Break:
    file: Path      # below the sources' root
    line: int       # from 1
    operator: str
    before: str
    after: str

    def __str__(self) -> str:
        what = f"{self.before.strip()}  ->  {self.after.strip() or '(nothing)'}"
        return f"{self.file}:{self.line} {self.operator}: {what}"


# An operator between blanks, so that neither templates nor references look like one.
SWAPS = {
    "relation": [("==", "!="), ("!=", "=="), ("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"),
                 ("<", ">="), (">", "<=")],
    "logic": [("&&", "||"), ("||", "&&")],
    "arithmetic": [("+", "-"), ("-", "+"), ("<<", ">>"), (">>", "<<"), ("*", "+"), ("%", "/")],
    "bits": [("|", "&"), ("&", "|"), ("^", "|"), ("|=", "&="), ("&=", "|="), ("+=", "-="), ("-=", "+=")],
}
ERRNOS = ["EINVAL", "EOPNOTSUPP", "ENOTSUP", "EBUSY", "EEXIST", "ENOMEM", "ENOENT", "EPERM", "EACCES"]
ROW = re.compile(r"^\s*\{.*\},?\s*(//.*)?$")
CONDITION = re.compile(r"\bif (?:constexpr )?\(")
# They change speed at most, or what this machine's processor is asked.
HINT = re.compile(r"prefetch|\breserve\(|shrink_to_fit|alignas|likely|\bassert\(|cpu_supports")
GUARD = re.compile(r"^(\s*)if \(.*\) (return\b.*;|continue;|break;)\s*$")
STATEMENT = re.compile(r"^\s+(?!return\b|else\b|case\b|break\b|using\b|throw\b|default\b|const\b|auto\b|static\b)"
                       r"[a-zA-Z_(*+-][^{}]*;\s*$")
DECLARATION = re.compile(r"^\s*[A-Za-z_][\w:<>, ]*[&*]? [A-Za-z_]\w*( = .*|\{.*\})?;")


def code_of(line: str) -> str:
    """`line` with strings and comments blanked out, of the same length."""
    def blank(match: re.Match[str]) -> str:
        return " " * len(match.group())
    return re.sub(r'"(\\.|[^"\\])*"|//.*$', blank, line)


def condition_of(code: str) -> tuple[int, int] | None:
    """Begin and end of the last part of an if's condition (what follows an initialiser), where it is all on this
    line."""
    match = CONDITION.search(code)
    if match is None or "constexpr" in match.group():
        return None
    begin, depth = match.end(), 1
    for place in range(match.end(), len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if code[place] == ";" and depth == 1:
            begin = place + 2
        if depth == 0:
            return begin, place
    return None


def breaks_of_line(line: str) -> Iterator[tuple[str, str]]:
    """(operator, the broken line) for every way to break `line`."""
    code = code_of(line)
    if (not code.strip() or re.match(r"\s*(#|static_assert|template|using|namespace|\*|///?)", line)
            or HINT.search(code)):
        return
    for operator, swaps in SWAPS.items():
        for old, new in swaps:
            for match in re.finditer(rf"(?<= ){re.escape(old)}(?= )", code):
                yield operator, line[:match.start()] + new + line[match.end():]
    for match in re.finditer(r" (\||\|\||&&) [^\s|&()]+(\([^()]*\))?(?= (?:\||&|\|\||&&|\?|:)(?: |$)|[;,)]|$)", code):
        yield "term", line[:match.start()] + line[match.end():]
    if place := condition_of(code):
        yield "check", line[:place[0]] + "false" + line[place[1]:]
        yield "check", line[:place[0]] + "true" + line[place[1]:]
    for match in re.finditer(r"!(?=[\w(])", code):
        yield "negation", line[:match.start()] + line[match.end():]
    for match in re.finditer(r"(?<![\w.'])(\d+)(?![\w.'xX])", code):
        for value in {int(match.group()) + 1, max(0, int(match.group()) - 1)} - {int(match.group())}:
            yield "constant", line[:match.start()] + str(value) + line[match.end():]
    for match in re.finditer(rf"\b({'|'.join(ERRNOS)})\b", code):
        yield "leniency", line[:match.start()] + "0" + line[match.end():]
        other = "EINVAL" if match.group() != "EINVAL" else "EOPNOTSUPP"
        yield "errno", line[:match.start()] + other + line[match.end():]
    for old, new in (("true", "false"), ("false", "true")):
        for match in re.finditer(rf"\breturn {old};", code):
            yield "result", line[:match.start()] + f"return {new};" + line[match.end():]
    if GUARD.match(code):
        yield "guard", ""
    elif ROW.match(code) and "," in code:
        yield "row", ""
    elif STATEMENT.match(code) and not DECLARATION.match(code) and code.count("(") == code.count(")"):
        yield "statement", ""


def breaks_of_file(root: Path, file: Path) -> list[Break]:
    """Every break of one file, in the order of its lines."""
    found = []
    in_comment = False
    for number, line in enumerate((root / file).read_text().splitlines(), 1):
        in_comment = (in_comment or "/*" in line) and "*/" not in line
        if in_comment:
            continue
        found += [Break(file, number, operator, line, after) for operator, after in breaks_of_line(line)]
    return found
