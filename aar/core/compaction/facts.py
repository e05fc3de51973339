"""What a conversation's events tell without any model: words of the user, files, commands, failing tests.

Read anew from all events at each compaction, so that nothing of it can fade from one summary to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aar.core.fold import MessageFold
from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    ContextEvent,
    Event,
    PlanEvent,
    PlanItem,
    Rewind,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import ResourceBlock, TextBlock
from aar.protocol.state import StopReason
from aar.protocol.tool import FileChange

_FAILED = re.compile(
    # pytest, unittest, go test, cargo test, jest and vitest, mocha, TAP
    r"^(?:FAILED|ERROR) (?P<pytest>\S+::\S+)"
    r"|^(?:FAIL|ERROR): (?P<unittest>\w+ \([\w.]+\))"
    r"|^\s*--- FAIL: (?P<go>\S+)"
    r"|^test (?P<cargo>\S+) \.\.\. FAILED"
    r"|^\s*[✕✗×] (?P<jest>.{3,120})"
    r"|^not ok \d+ (?:- )?(?P<tap>.{3,120})",
    re.MULTILINE,
)
_MOST_FAILED = 20
_COMMAND_TOOLS = frozenset({"bash"})
_TAIL_CHARS = 300
_COMMAND_CHARS = 300
_MOST_COMMANDS = 200


@dataclass(frozen=True, slots=True)
class Words:
    """What the user said once."""

    seq: int
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that ran.

    Attributes:
        seq: Of its result.
        line: The command.
        exit_code: ``None``: it did not end by itself.
        failed: Names of failing tests that its output told.
        tail: The end of its output, where it failed.
    """

    seq: int
    line: str
    exit_code: int | None
    failed: tuple[str, ...] = ()
    tail: str = ""

    @property
    def fails(self) -> bool:
        """Whether it failed."""
        return self.exit_code != 0


@dataclass
class Facts:
    """What the events of a conversation tell.

    Attributes:
        words: All that the user said, oldest first.
        sayings: What the model said, oldest first.
        changes: Files that were changed, by path, the changes of each joined.
        reads: Files that were read, each once, the last one last.
        runs: The last run of each command, by its line, in that order.
        plan: Items of the plan.
        check: Output of the check that fails, or empty.
        mode: What the model was told about the permission mode last, or empty.
        notes: What models wrote in earlier compactions, by section.
        references: Where whole outputs are kept, by seq of the result.
    """

    words: list[Words] = field(default_factory=list[Words])
    sayings: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    changes: dict[str, FileChange] = field(default_factory=dict[str, FileChange])
    reads: dict[str, None] = field(default_factory=dict[str, None])
    runs: dict[str, Command] = field(default_factory=dict[str, Command])
    plan: tuple[PlanItem, ...] = ()
    check: str = ""
    mode: str = ""
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    references: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def commands(self) -> list[Command]:
        """The last run of each command, the latest last; of very many the last ones."""
        return list(self.runs.values())[-_MOST_COMMANDS:]

    @property
    def failing(self) -> list[Command]:
        """Commands whose last run failed, with no later run of them, or of a wider one, that passed."""
        commands = self.commands
        return [
            command
            for at, command in enumerate(commands)
            if command.fails
            and not any(not later.fails and _covers(later.line, command.line) for later in commands[at + 1 :])
        ]


def _covers(wider: str, line: str) -> bool:
    """Tell whether ``wider`` is ``line`` with fewer arguments: ``pytest`` runs ``pytest tests/a.py`` too."""
    return line == wider or line.startswith(f"{wider} ")


@dataclass
class Gathered:
    """A conversation as its events tell it.

    Attributes:
        fold: Its messages.
        facts: See `Facts`.
        last_seq: Seq of the last event.
    """

    fold: MessageFold
    facts: Facts
    last_seq: int


def gather(events: Iterable[Event], agent_id: str = "main") -> Gathered:
    """Read all events once; for a thread, since a long session takes a second."""
    collector = _Collector(agent_id)
    for event in events:
        collector.take(event)
    return Gathered(collector.fold, collector.settle(), collector.last_seq)


class _Collector:
    """Takes down what is worth it with its seq, and joins at the end what was not undone."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.fold = MessageFold(agent_id)
        self.last_seq = 0
        self._calls: dict[str, ToolCall] = {}
        self._records: list[tuple[int, Callable[[Facts], None]]] = []
        self._lives: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]

    def take(self, event: Event) -> None:
        self.last_seq = max(self.last_seq, event.seq or 0)
        self.fold.apply(event)
        if isinstance(event, ToolResult):
            self._on_result(event)
        elif event.agent_id != self.agent_id:
            return
        elif isinstance(event, ToolCall):
            self._calls[event.call_id] = event
        elif isinstance(event, Rewind):
            if event.scope != "files":
                self._lives.append((self.last_seq, self._live_after(event.to_seq)))
        else:
            self._note(event)

    def _live_after(self, seq: int) -> list[tuple[int, int]]:
        """Return which seqs, as ranges, counted right after event ``seq``."""
        at, ranges = next(item for item in reversed(self._lives) if item[0] <= seq)
        return [*ranges, (at + 1, seq)]

    def _keep(self, record: Callable[[Facts], None]) -> None:
        self._records.append((self.last_seq, record))

    def _note(self, event: Event) -> None:
        seq = self.last_seq
        match event:
            case UserMessage():
                words = Words(seq, _said(event.content), event.source)
                self._keep(lambda facts: facts.words.append(words))
            case AssistantMessage():
                text = event.content.strip()
                if text:
                    self._keep(lambda facts: facts.sayings.append((seq, text)))
            case ContextEvent():
                self._on_context(event)
            case PlanEvent():
                self._keep(lambda facts: setattr(facts, "plan", event.items))
            case StateEvent() if event.stop_reason is StopReason.VERIFIED:
                self._keep(lambda facts: setattr(facts, "check", ""))
            case Compaction():
                self._on_compaction(event)
            case _:
                pass

    def _on_context(self, event: ContextEvent) -> None:
        text = _said(event.content)
        if event.source == "verify":
            self._keep(lambda facts: setattr(facts, "check", text))
        elif event.label == "mode":
            self._keep(lambda facts: setattr(facts, "mode", text))

    def _on_compaction(self, event: Compaction) -> None:
        if event.summary:
            self._keep(lambda facts: setattr(facts, "notes", dict(event.notes)))
        kept = {item.seq: item.output_ref for item in event.shrunk if item.output_ref}
        self._keep(lambda facts: facts.references.update(kept))

    def _on_result(self, event: ToolResult) -> None:
        for change in event.file_changes:
            self._keep(lambda facts, change=change: _join(facts.changes, change))
        if event.agent_id != self.agent_id:
            return
        if event.output_ref:
            reference, seq = event.output_ref, self.last_seq
            self._keep(lambda facts: facts.references.__setitem__(seq, reference))
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return
        if event.tool_name in _COMMAND_TOOLS:
            command = _command(self.last_seq, call, event)
            if command is not None:
                self._keep(lambda facts: _again(facts.runs, command.line, command))
        elif event.tool_name == "read_file" and not event.is_error:
            path = str(call.arguments.get("path", ""))
            if path:
                self._keep(lambda facts: _again(facts.reads, path, None))

    def settle(self) -> Facts:
        at, ranges = self._lives[-1]
        live = [*ranges, (at + 1, self.last_seq)]
        facts = Facts()
        for seq, record in self._records:
            if any(first <= seq <= last for first, last in live):
                record(facts)
        return facts


def _said(content: Iterable[Any]) -> str:
    """Return the text of content blocks; of an attached file its name."""
    parts: list[str] = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, ResourceBlock):
            parts.append(f"[attached: {block.uri}]")
        else:
            parts.append("[image]")
    return "\n".join(parts).strip()


def _join(changes: dict[str, FileChange], change: FileChange) -> None:
    earlier = changes.pop(change.path, None)
    if earlier is not None:
        created = earlier.action == "create" and change.action == "modify"
        change = change.model_copy(
            update={
                "action": "create" if created else change.action,
                "added": earlier.added + change.added,
                "removed": earlier.removed + change.removed,
            }
        )
    changes[change.path] = change


def _command(seq: int, call: ToolCall, result: ToolResult) -> Command | None:
    line = str(call.arguments.get("command", "")).strip()
    if not line or call.arguments.get("background"):
        return None
    code = result.exit_code if result.exit_code is not None else (1 if result.is_error else 0)
    failed = failed_tests(result.output) if code else ()
    tail = result.output.rstrip()[-_TAIL_CHARS:] if code and not failed else ""
    return Command(seq, _cut(line, _COMMAND_CHARS), code, failed, tail)


def failed_tests(output: str) -> tuple[str, ...]:
    """Return the names of failing tests in the output of a test runner, each once."""
    names = (next(group for group in match.groups() if group).strip() for match in _FAILED.finditer(output))
    return tuple(dict.fromkeys(names))[:_MOST_FAILED]


def _again(table: dict[str, Any], key: str, value: Any) -> None:
    """Put ``key`` at the end of ``table``."""
    table.pop(key, None)
    table[key] = value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
