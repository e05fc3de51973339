"""Going back: which checkpoints and steps of a session count, where an undo leads, what it cannot reach.

All of it is a fold over the session's events. A `Rewind` means: as it was after event ``to_seq``. So an undo
goes to a place before a step, and a redo to the place right before that undo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, Literal

from aar.protocol.events import (
    AssistantMessage,
    CheckpointEvent,
    Event,
    Reasoning,
    Rewind,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.safety.shell_types import words

Scope = Literal["conversation", "files", "both"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A checkpoint in the course of a session.

    Attributes:
        seq: Of its event.
        checkpoint_id: Its name in the store.
        written: Contents that tools say they left, by path (``None``: removed), since this checkpoint.
    """

    seq: int
    checkpoint_id: str
    written: dict[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True)
class Place:
    """A prompt or a step of the main agent's conversation: its first event, and a prompt's first words."""

    seq: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Undone:
    """An undo that a redo can take back.

    Attributes:
        before_id: Checkpoint of the files right before it; empty where files took no part.
        to_seq: Where the redo leads.
        scope: What it took back.
    """

    before_id: str
    to_seq: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class _Course:
    """What counts at one moment: of the files (marks, calls), of the conversation (prompts, steps)."""

    marks: tuple[Mark, ...] = ()
    calls: tuple[int, ...] = ()
    prompts: tuple[Place, ...] = ()
    steps: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class _Saved:
    """What counted right before a rewind, and what was saved then."""

    seq: int
    course: _Course
    below: tuple[_Saved, ...]


class History:
    """Folds a session's events to what undo, redo and rewind can lead to.

    Attributes:
        undone: Undos that can be taken back, the last one last.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.undone: list[Undone] = []
        self._course = _Course()
        self._before: dict[str, list[_Saved]] = {"files": [], "conversation": []}
        self._step: tuple[str | None, int | None] = (None, None)
        self._pending: CheckpointEvent | None = None
        self._seq = 0
        for event in events:
            self.apply(event)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Checkpoints before steps that count for the files, the oldest first."""
        return self._course.marks

    @property
    def calls(self) -> tuple[int, ...]:
        """Events of the tool calls whose effects on files were not taken back."""
        return self._course.calls

    @property
    def prompts(self) -> tuple[Place, ...]:
        """Prompts that count in the conversation."""
        return self._course.prompts

    @property
    def steps(self) -> tuple[Place, ...]:
        """Steps that count in the conversation."""
        return self._course.steps

    def place_before(self, seq: int) -> int:
        """Return the event to which the conversation goes back so that the step around ``seq`` is gone."""
        places = [place.seq for place in (*self.steps, *self.prompts) if place.seq <= seq]
        return max(places, default=seq) - 1

    def apply(self, event: Event) -> None:
        """Take the next event."""
        self._seq = event.seq or self._seq
        if isinstance(event, ToolCall):
            self._course = replace(self._course, calls=(*self._course.calls, self._seq))
        match event:
            case CheckpointEvent():
                self._on_checkpoint(event)
            case Rewind():
                self._on_rewind(event)
            case ToolResult():
                self._on_result(event)
            case UserMessage() if event.agent_id == "main" and event.source in ("prompt", "queue"):
                said = " ".join(block.text for block in event.content if isinstance(block, TextBlock)).split()
                place = Place(self._seq, " ".join(said)[:80])
                self._course = replace(self._course, prompts=(*self._course.prompts, place))
                self.undone = [item for item in self.undone if item.scope == "files"]
            case AssistantMessage() | Reasoning() | ToolCall() if event.agent_id == "main":
                key = (event.run_id, event.step)
                if key != self._step or event.step is None:
                    self._step = key
                    self._course = replace(self._course, steps=(*self._course.steps, Place(self._seq)))
            case _:
                pass

    def _on_checkpoint(self, event: CheckpointEvent) -> None:
        if event.kind in ("undo", "redo"):
            self._pending = event
            return
        mark = Mark(self._seq, event.checkpoint_id)
        self._course = replace(self._course, marks=(*self._course.marks, mark))
        if event.kind == "auto":
            self.undone.clear()

    def _on_result(self, event: ToolResult) -> None:
        if not self._course.marks:
            return
        written = self._course.marks[-1].written
        for change in event.file_changes:
            if change.old_path is not None:
                written[change.old_path] = None
            if change.action == "delete" or change.after is not None:
                written[change.path] = change.after

    def _on_rewind(self, event: Rewind) -> None:
        earlier = self._course
        marks, conversation = earlier, earlier
        if event.scope != "conversation":
            marks = self._went_back("files", event.to_seq)
        if event.scope != "files":
            conversation = self._went_back("conversation", event.to_seq)
            self._step = (None, None)
        self._course = _Course(
            tuple(m for m in marks.marks if event.scope == "conversation" or m.seq <= event.to_seq),
            tuple(c for c in marks.calls if event.scope == "conversation" or c <= event.to_seq),
            tuple(p for p in conversation.prompts if event.scope == "files" or p.seq <= event.to_seq),
            tuple(s for s in conversation.steps if event.scope == "files" or s.seq <= event.to_seq),
        )
        checkpoint, self._pending = self._pending, None
        if checkpoint is not None and checkpoint.kind == "redo":
            del self.undone[-1:]
        else:
            before = self._seq - 1 - (checkpoint is not None)
            self.undone.append(Undone(checkpoint.checkpoint_id if checkpoint else "", before, event.scope))

    def _went_back(self, what: str, to_seq: int) -> _Course:
        """Return what counted when the course last held ``to_seq``, and remember what counts now."""
        saved, course = list(self._before[what]), self._course
        here = _Saved(self._seq, course, tuple(saved))
        while saved and saved[-1].seq > to_seq:
            last = saved.pop()
            course, saved = last.course, list(last.below)
        self._before[what] = [*saved, here]
        return course


# --- what cannot be undone ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Irreversible:
    """An effect that no checkpoint holds.

    Attributes:
        seq: Of the call.
        what: The command or tool.
        why: What stays as it is.
    """

    seq: int
    what: str
    why: str


_NOT_RUN: Final = frozenset({"denied", "blocked", "unknown_tool", "no_handler", "invalid_arguments"})
_REMOTE: Final = "what it sent or changed elsewhere stays"
_DATABASE: Final = "what it changed in a database stays"
_REPOSITORY: Final = (
    "commits, branches, index and stash of the repository stay as they are; only files come back"
)
_PROGRAMS: Final[dict[str, str]] = {
    **dict.fromkeys(
        words(
            "curl wget ssh scp sftp rsync ftp nc telnet gh glab aws gcloud az kubectl helm terraform "
            "tofu pulumi ansible ansible-playbook heroku fly flyctl vercel netlify firebase mail sendmail"
        ),
        _REMOTE,
    ),
    **dict.fromkeys(
        words(
            "psql mysql mariadb sqlite3 mongosh mongo redis-cli sqlcmd cqlsh clickhouse-client pg_restore "
            "createdb dropdb alembic flyway liquibase"
        ),
        _DATABASE,
    ),
    **dict.fromkeys(words("docker podman docker-compose nerdctl"), "containers, images and volumes stay"),
    **dict.fromkeys(
        words("apt apt-get yum dnf pacman apk brew snap systemctl service crontab useradd mount"),
        "what it changed in the system stays",
    ),
}
_PUBLISH: Final = {"publish": _REMOTE, "unpublish": _REMOTE, "deprecate": _REMOTE}
_SUB: Final[dict[str, dict[str, str]]] = {
    "git": {
        "push": "the remote keeps what was pushed",
        **dict.fromkeys(
            words(
                "commit merge rebase reset checkout switch branch tag stash pull fetch cherry-pick revert am "
                "gc add rm mv update-ref remote config clone submodule worktree"
            ),
            _REPOSITORY,
        ),
    },
    **dict.fromkeys(("npm", "pnpm", "yarn", "cargo", "poetry", "uv"), _PUBLISH),
    "twine": {"upload": _REMOTE},
    "pip": {"install": "installed packages stay", "uninstall": "removed packages stay removed"},
    "manage.py": {"migrate": _DATABASE},
}


def irreversible(events: Iterable[Event], workspace: PurePath) -> list[Irreversible]:
    """Return what the calls among ``events`` did, or may have done, that bringing files back does not undo.

    Calls that were refused or never began are left out. Judged by the names of commands: a program that a
    script of the project starts is not seen.
    """
    calls: dict[str, ToolCall] = {}
    found: list[Irreversible] = []
    for event in events:
        if isinstance(event, ToolCall):
            calls[event.call_id] = event
        elif isinstance(event, ToolResult):
            call = calls.pop(event.call_id, None)
            if call is not None and event.category not in _NOT_RUN:
                found += _effects(call, event, workspace)
    found += [effect for call in calls.values() for effect in _of_call(call)]
    return found


def _effects(call: ToolCall, result: ToolResult, workspace: PurePath) -> list[Irreversible]:
    effects = _of_call(call)
    for change in result.file_changes:
        path = PurePath(change.path)
        if path.is_absolute() and not path.is_relative_to(workspace):
            effects.append(
                Irreversible(call.seq or 0, f"{call.tool_name} {path}", "it lies outside of the workspace")
            )
    return effects


def _of_call(call: ToolCall) -> list[Irreversible]:
    seq = call.seq or 0
    if "__" in call.tool_name or call.tool_name.startswith("mcp"):
        return [Irreversible(seq, call.tool_name, _REMOTE)]
    command = call.arguments.get("command")
    if call.tool_name != "bash" or not isinstance(command, str):
        return []
    from aar.safety.shell_grammar import parse_command

    parsed = parse_command(command)
    shown = " ".join(command.split())[:120]
    reasons = dict.fromkeys(why for part in parsed.walk() if (why := _of_command(part.argv)) is not None)
    if parsed.broken or parsed.too_large:
        reasons["it could not be read as shell, so nothing is known of what it reached"] = None
    if call.arguments.get("background") is True:
        reasons["it may go on in the background and write again"] = None
    return [Irreversible(seq, shown, why) for why in reasons]


def _of_command(argv: tuple[str, ...]) -> str | None:
    names = [word.rsplit("/", 1)[-1] for word in argv]
    for place, name in enumerate(names[:3]):
        if place and name not in ("pip", "manage.py", "twine"):
            continue
        table = _SUB.get("pip" if name.startswith("pip") and name[3:].strip("0123456789.") == "" else name)
        if table is not None:
            rest = [word for word in names[place + 1 :] if not word.startswith("-")]
            return next((table[word] for word in rest[:3] if word in table), None)
        if place == 0 and name in _PROGRAMS:
            return _PROGRAMS[name]
    return None
