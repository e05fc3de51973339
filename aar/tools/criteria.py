"""Criteria of success as text: how a run, or a step of a plan, tells that it is done.

A criterion is a shell command, or begins with the name of another kind::

    pytest -q                      the command ends with code 0 (also ``command: pytest -q``)
    file: dist/aar.whl             the file exists
    changed: CHANGELOG.md          the file is not what it was at the beginning
    text: README.md =~ (?i)install a regular expression is found in the file
    answer: ^APPROVED              a regular expression is found in the answer
    schema: schema.json out.json   the JSON file is valid under the JSON Schema
    user: Does the page look well? the user says yes
    judge: The error names the key a model that sees answer and changes says so
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from aar.protocol.errors import UsageError
from aar.protocol.late import late_pattern

Kind = Literal["command", "file", "changed", "text", "answer", "schema", "user", "judge"]
_KINDED: Final = late_pattern(
    r"\s*(command|file|changed|text|answer|schema|user|judge):(?!//)\s*(.*)", re.DOTALL | re.IGNORECASE
)
_BUILTINS: Final = frozenset(
    {"test", "[", "[[", "cd", "!", "true", "false", "set", "export", "if", "for", "("}
)
_ASSIGNMENT: Final = late_pattern(r"[A-Za-z_]\w*=")
_PLAIN_WORD: Final = late_pattern(r"[A-Za-z]+[.,;:]?")


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion.

    Attributes:
        kind: What is looked at.
        subject: Command, path, question, or what must be true; of ``schema`` the file.
        pattern: Regular expression of ``text``; path of the schema of ``schema``.
    """

    kind: Kind
    subject: str
    pattern: str = ""

    @property
    def text(self) -> str:
        """The criterion as `parse_criterion` reads it; a command stands bare."""
        if self.kind == "command":
            return self.subject if _KINDED.fullmatch(self.subject) is None else f"command: {self.subject}"
        if self.kind == "text":
            return f"text: {self.subject} =~ {self.pattern}"
        if self.kind == "schema":
            return f"schema: {shlex.quote(self.pattern)} {shlex.quote(self.subject)}"
        return f"{self.kind}: {self.subject}"


def parse_criterion(text: str) -> Criterion:
    """Read a criterion.

    Raises:
        UsageError: It is empty, or what its kind needs is not there.
    """
    kinded = _KINDED.fullmatch(text)
    kind, rest = ("command", text.strip()) if kinded is None else (kinded[1].lower(), kinded[2].strip())
    if not rest:
        raise UsageError(f"The check {text!r} says nothing; give a command, or for example `file: PATH`.")
    if kind == "text":
        path, found, pattern = rest.partition("=~")
        if not found or not path.strip() or not pattern.strip():
            raise UsageError(f"The check {text!r} needs a file and a pattern: `text: PATH =~ REGEX`.")
        return Criterion("text", path.strip(), _pattern(pattern.strip(), text))
    if kind == "answer":
        return Criterion("answer", _pattern(rest, text))
    if kind == "schema":
        words = _words(rest, text)
        if len(words) != 2:
            raise UsageError(f"The check {text!r} needs two files: `schema: SCHEMA.json FILE.json`.")
        return Criterion("schema", words[1], words[0])
    return Criterion(cast("Kind", kind), rest)


def _pattern(pattern: str, text: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"The pattern of the check {text!r} is wrong: {error}.") from None
    return pattern


def _words(rest: str, text: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"The check {text!r} cannot be read: {error}.") from None


def settled(text: str, workspace: Path) -> str:
    """Return the text of a criterion as a model wrote it, with its kind: prose is for a judge.

    Raises:
        UsageError: It names a kind and lacks what that needs.
    """
    if _KINDED.fullmatch(text) is None and not looks_like_command(text, workspace):
        return f"judge: {text.strip()}"
    return parse_criterion(text).text


def looks_like_command(text: str, workspace: Path) -> bool:
    """Tell whether ``text`` begins with something that can be run here, and does not read as a sentence."""
    words = [word for word in text.split() if not _ASSIGNMENT.match(word)]
    if not words:
        return False
    first = words[0].lstrip("(")
    known = first in _BUILTINS or shutil.which(first) is not None
    if not known and not ("/" in first and (workspace / first).is_file()):
        return False
    return len(words) < 4 or not all(_PLAIN_WORD.fullmatch(word) for word in words)
