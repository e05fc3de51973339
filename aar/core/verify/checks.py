"""Criteria of success looked at, one by one: commands, files, patterns, schemas, people, judges."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aar.core.output_schema import OutputSchema
from aar.core.verify.output import shortened
from aar.protocol.errors import ToolFailure
from aar.protocol.ports import Ask
from aar.tools.criteria import Criterion

_VOLATILE = re.compile(rb"\d+(\.\d+)?\s*(s|ms|seconds?)\b|0x[0-9a-f]+")
_YES = frozenset({"yes", "y", "ok", "okay", "ja", "true"})
_DIFF_CHARS = 40_000


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How the checks went; ``command`` is the first that failed, or the last when all passed.

    Attributes:
        passed: Whether all is as it should be.
        command: The criterion as text.
        output: What the model reads of it, bounded.
        exit_code: Of a command; ``None``: it is no command, or was stopped.
        unknown: Whether nobody could tell: no person, no judge, no wall.
    """

    passed: bool
    command: str
    output: str
    exit_code: int | None = None
    unknown: bool = False

    @property
    def signature(self) -> str:
        """Equal for equal failures, whatever times and addresses the output names."""
        steady = _VOLATILE.sub(b"#", self.output.encode())
        return hashlib.sha256(self.command.encode() + steady).hexdigest()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a judge sees of the work: what was asked for, the answer, and differences of files."""

    answer: str = ""
    diffs: Sequence[str] = ()
    task: str = ""

    @property
    def text(self) -> str:
        """All of it, bounded."""
        changes = shortened("\n".join(self.diffs), _DIFF_CHARS, 1 / 2)
        parts = (("task", self.task[:4000]), ("answer", self.answer[-8000:]), ("changes", changes))
        return "\n".join(f"<{name}>\n{text}\n</{name}>" for name, text in parts if text)


class Readable(Protocol):
    """Files within the limits, as `aar.safety.files.WorkspaceFiles` gives them."""

    def peek_bytes(self, path: str) -> bytes:
        """Return a file's content."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether anything is there."""
        ...


Judge = Callable[[str, Evidence], Awaitable[tuple[bool, str]]]
"""``await judge(what must be true, evidence)``: whether it is, and why."""
RunCommand = Callable[[str], Awaitable[CheckResult]]


@dataclass
class Checks:
    """Looks whether criteria hold.

    Attributes:
        run_command: Runs a command and tells how it ended.
        files: For criteria about files; ``None``: there are none to look at.
        ask: Asks the user.
        judge: Asks a model.
    """

    run_command: RunCommand
    files: Readable | None = None
    ask: Ask | None = None
    judge: Judge | None = None
    _before: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def begin(self, criteria: Iterable[Criterion]) -> None:
        """Remember the files that are to change, as they are now."""
        for each in criteria:
            if each.kind == "changed":
                self._before.setdefault(each.subject, self._stamp(each.subject))

    def _stamp(self, path: str) -> str | None:
        content = self._content(path)
        return None if content is None else hashlib.sha256(content).hexdigest()

    def _content(self, path: str) -> bytes | None:
        if self.files is None:
            return None
        try:
            return self.files.peek_bytes(path)
        except (ToolFailure, OSError):
            return None

    async def check(self, criterion: Criterion, evidence: Evidence) -> CheckResult:
        """Look whether ``criterion`` holds."""
        match criterion.kind:
            case "command":
                return await self.run_command(criterion.subject)
            case "user":
                return await self._user(criterion)
            case "judge":
                return await self._judged(criterion, evidence)
            case "answer":
                found = re.search(criterion.subject, evidence.answer, re.MULTILINE) is not None
                return _told(criterion, found, "The answer does not match.")
            case _:
                return await asyncio.to_thread(self._of_file, criterion)

    def _of_file(self, criterion: Criterion) -> CheckResult:
        path = criterion.subject
        try:
            there = self.files is not None and self.files.exists(path)
        except ToolFailure as error:
            return CheckResult(False, criterion.text, error.message)
        if not there and criterion.kind != "changed":
            return _told(criterion, False, f"There is no {path}.")
        if criterion.kind == "file":
            return _told(criterion, True, "")
        if criterion.kind == "changed":
            return _told(criterion, self._stamp(path) != self._before.get(path), f"{path} did not change.")
        content = self._content(path)
        if content is None:
            return _told(criterion, False, f"{path} cannot be read.")
        text = content.decode("utf-8", "replace")
        if criterion.kind == "text":
            found = re.search(criterion.pattern, text, re.MULTILINE) is not None
            return _told(criterion, found, f"{path} holds nothing that matches {criterion.pattern}")
        return self._valid(criterion, text)

    def _valid(self, criterion: Criterion, text: str) -> CheckResult:
        raw = self._content(criterion.pattern)
        try:
            schema = json.loads(raw or b"")
        except ValueError:
            return _told(criterion, False, f"{criterion.pattern} is no JSON Schema that can be read.")
        problems = OutputSchema(schema).problems(text)
        return _told(criterion, not problems, " ".join(problems))

    async def _user(self, criterion: Criterion) -> CheckResult:
        said = None if self.ask is None else await self.ask(criterion.subject, ("yes", "no"))
        if said is None:
            words = "Nobody is here to confirm it."
            return CheckResult(False, criterion.text, words, unknown=True)
        word = said.strip().lower()
        return _told(criterion, word.rstrip(".!") in _YES, f"The user says: {said.strip() or 'no'}")

    async def _judged(self, criterion: Criterion, evidence: Evidence) -> CheckResult:
        if self.judge is None:
            return CheckResult(False, criterion.text, "No model is here to judge it.", unknown=True)
        passed, why = await self.judge(criterion.subject, evidence)
        return _told(criterion, passed, why)


def _told(criterion: Criterion, passed: bool, otherwise: str) -> CheckResult:
    return CheckResult(passed, criterion.text, "" if passed else otherwise)
