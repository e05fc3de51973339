"""Ports: the Protocols through which the floors above reach the world, and each other.

``core`` and ``tools`` get their collaborators as arguments of these shapes, so that tests inject their
own without patching. A tool gets them all in one `ToolContext`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from aar.protocol.events import Approval, ApprovalRequest, CheckpointEvent, Event, PlanItem

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager

    from aar.protocol.notes import NoteKeeper
    from aar.protocol.tool import ToolOutcome


class Emit(Protocol):
    """The way into the session. Stamps the envelope (ids, run, step, agent) of what it is given."""

    def append(self, *events: Event) -> tuple[Event, ...]:
        """Store ``events`` (written to the file when this returns), hand them on, return them stamped."""
        ...

    def publish(self, event: Event) -> None:
        """Hand on an event that is not stored (`StreamChunk`, `ToolProgress`)."""
        ...


class Approver(Protocol):
    """Whoever answers approval requests. Without one the answer is always no."""

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Return the decision; waits as long as a person takes."""
        ...


class Checkpointer(Protocol):
    """Keeps the state of files before they change."""

    async def before(self, call_id: str, paths: Sequence[Path] | None) -> CheckpointEvent | None:
        """Keep ``paths`` (``None``: the whole workspace); ``None`` is returned when nothing was kept."""
        ...

    def blob(self, data: bytes) -> str | None:
        """Keep the content of one file and return its blob id, or ``None`` when blobs are not kept."""
        ...


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Identity of a file's content at one moment: changes when the file is written."""

    size: int
    mtime_ns: int
    sha256: str


class FileAccess(Protocol):
    """Files as tools see them: paths are resolved, limits are checked where the file is opened.

    Every method takes a path as the model wrote it (relative to the workspace, or absolute).

    Raises:
        ToolFailure: ``blocked`` outside of what is allowed, ``not_found``, ``invalid_arguments`` for a
            folder, device or FIFO, ``stale_file`` for a file that changed since the model read it.
    """

    def resolve(self, path: str) -> Path:
        """Return the absolute, symlink-free path."""
        ...

    def display(self, path: Path) -> str:
        """Return the path as the model should see it: relative inside the workspace."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return a regular file's content and remember that the model knows it."""
        ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file atomically (parents are made, mode bits kept); refuses a stale one."""
        ...

    def delete(self, path: str) -> None:
        """Remove a regular file; refuses a stale one."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether anything is there."""
        ...


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A process to start.

    Attributes:
        argv: Program and arguments; a shell command is ``("/bin/sh" or bash, "-c", command)``.
        cwd: Working folder.
        env: Additions to the scrubbed environment.
        kind: ``tool`` runs inside the wall; ``helper`` is aar's own (git, rg); ``interactive`` keeps the
            terminal (an editor that the user opened).
        timeout_s: Seconds until the process tree is killed; ``None``: no limit.
        writable: Folders that may be written besides the workspace, and protected paths in it that a person
            has unlocked (``tool`` only).
        read_only: Whether even the workspace may not be written (plan mode).
        network: Whether the network may be used.
        stdin: Bytes for standard input; ``None``: closed.
        stdin_fd: Descriptor that is standard input instead; the caller still closes its own.
        max_output: Bytes of output that are kept in memory (head and tail).
        spool: File that gets the whole output, or ``None``.
        merge_stderr: Whether standard error goes into the same stream as standard output.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    kind: Literal["tool", "helper", "interactive"] = "tool"
    timeout_s: float | None = None
    writable: tuple[Path, ...] = ()
    read_only: bool = False
    network: bool = False
    stdin: bytes | None = None
    stdin_fd: int | None = None
    max_output: int = 1_000_000
    spool: Path | None = None
    merge_stderr: bool = True


@dataclass(frozen=True, slots=True)
class BlockedHost:
    """A connection that the wall refused.

    Attributes:
        host: The host, made harmless; at most 253 characters.
        port: Its port.
        reason: Why, in words.
        rule: What ``allow_domains`` would need; ``None`` when nothing allows it.
    """

    host: str
    port: int
    reason: str
    rule: str | None


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """How a process ended.

    Attributes:
        output: Head and tail of standard output (and error when merged); a line tells what was cut.
        stderr: Head and tail of standard error when not merged.
        exit_code: Negative signal number for a killed process; ``None`` when it was never reaped.
        total_bytes: All that was written, kept or not.
        truncated: Whether ``output`` is less than that.
        timed_out: Whether the tree was killed for time.
        duration_s: Wall-clock seconds.
        wall: Name of the wall that held (``bubblewrap``, ``landlock``, ``none`` …).
        notices: What the wall did, in sentences (a change that was undone); they end ``output`` too.
        blocked: Hosts that were refused meanwhile, with the rule that would allow each.
    """

    output: bytes
    stderr: bytes
    exit_code: int | None
    total_bytes: int
    truncated: bool
    timed_out: bool
    duration_s: float
    wall: str
    notices: tuple[str, ...] = ()
    blocked: tuple[BlockedHost, ...] = ()


class Process(Protocol):
    """A running process."""

    @property
    def pid(self) -> int:
        """Process id; also its process group."""
        ...

    async def wait(self) -> SpawnResult:
        """Wait for the end. Cancelling the wait kills the tree."""
        ...

    async def ended_within(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; return whether it came. Cancelling leaves the process alone."""
        ...

    def output(self) -> bytes:
        """Head and tail of what was written so far."""
        ...

    async def kill(self) -> None:
        """Kill the tree; returns within a second."""
        ...

    def lift_time_limit(self) -> None:
        """Let it run for as long as it takes."""
        ...

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        ...


class Spawner(Protocol):
    """The one way to start a process (DESIGN 1.3)."""

    @property
    def wall(self) -> str:
        """Name of the wall around ``tool`` processes; ``none`` when there is none."""
        ...

    async def start(self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None) -> Process:
        """Start a process; ``on_output`` gets every piece as it comes.

        Raises:
            SandboxError: The wall could not be raised.
            FileNotFoundError: The program does not exist.
        """
        ...

    async def run(
        self, request: SpawnRequest, on_output: Callable[[bytes], None] | None = None
    ) -> SpawnResult:
        """Start a process and wait for its end. Cancelling kills the tree."""
        ...


class Foreground(Protocol):
    """The commands that somebody waits for; the user may send them to the background."""

    def waiting(self, call_id: str) -> AbstractContextManager[asyncio.Event]:
        """Surround the wait for the command of a call; the event is set when the wait is to end."""
        ...


class ShellLine(Protocol):
    """One command of a kept shell."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Program and arguments that run it."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """Additions to its environment."""
        ...

    def ended(self, result: SpawnResult) -> str:
        """Take up what the command left; return what the model should know of it, or nothing."""
        ...

    def dropped(self) -> None:
        """Forget the command: what it leaves is not taken up."""
        ...


class KeptShell(Protocol):
    """What the commands of one agent leave to the next: folder, variables, functions."""

    def line(self, command: str, *, clean: bool) -> ShellLine:
        """Return how a command is run; ``clean``: it gets and leaves nothing but the folder."""
        ...


class OutputKeeper(Protocol):
    """Keeps whole tool outputs on disk, so that the model's view may be cut."""

    def new_file(self, call_id: str) -> tuple[str, Path]:
        """Return a reference for ``read_output`` and the path of a file for it, which is not there yet."""
        ...

    def keep(self, call_id: str, text: str) -> str:
        """Store ``text`` and return its reference."""
        ...

    def path(self, reference: str) -> Path:
        """Return the file of ``reference``.

        Raises:
            ToolFailure: ``not_found`` for a reference of which nothing is kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class HookVerdict:
    """What hooks say about what is going to happen, or has happened.

    Attributes:
        refusal: Why it may not go on; ``None``: nobody objects.
        arguments: Other arguments for the call.
        allow: Whether a question about it is answered with yes; never above a denial.
        context: Texts for the model.
        trusted: Whether all of it comes from the user's own hooks.
    """

    refusal: str | None = None
    arguments: dict[str, object] | None = None
    allow: bool = False
    context: tuple[str, ...] = ()
    trusted: bool = True


class Hooks(Protocol):
    """What users let happen at certain moments of a run."""

    def wants(self, event: str) -> bool:
        """Tell whether anything hears of ``event``; without it `fire` need not be called."""
        ...

    async def fire(self, event: str, data: Mapping[str, object]) -> HookVerdict:
        """Tell of an event and return what is said to it. The user is told of hooks that fail."""
        ...


class Delegate(Protocol):
    """Lets other agents work in the name of the agent that makes a tool call."""

    async def start(
        self,
        agent: str,
        prompt: str,
        *,
        title: str = "",
        background: bool = False,
        resume: str | None = None,
        worktree: bool | None = None,
    ) -> ToolOutcome:
        """Give a task to an agent; return its report, or at once when it works in the background.

        Args:
            agent: Its name.
            prompt: The whole task.
            title: The task in a few words.
            background: Whether to return at once.
            resume: Id of one that worked before and goes on.
            worktree: Whether it works in a copy of the project; ``None``: as its file says.

        Raises:
            ToolFailure: There is no such agent, or no more may be started here.
        """
        ...

    async def collect(self, agent_id: str, *, wait_s: float, stop: bool) -> ToolOutcome:
        """Return the report of an agent in the background, or that it still works.

        Raises:
            ToolFailure: There is no such agent.
        """
        ...


Ask = Callable[[str, Sequence[str]], Awaitable[str | None]]
"""``await ask(question, options)``: the user's answer, or ``None`` when nobody can answer."""


@dataclass(slots=True)
class ToolContext:
    """All that a tool may use. One is made for each call.

    Attributes:
        call_id: Of the call.
        workspace: Root of the project, absolute and resolved.
        files: Files, within the limits.
        spawner: Processes, inside the wall.
        outputs: Where whole outputs are kept.
        progress: Shows a piece of output while the tool runs.
        ask: Asks the user.
        plan: Items of the todo list or plan as they stand.
        set_plan: Replaces them (becomes a `PlanEvent`).
        write_plan: Sets down a plan that can be run, with its goal; returns the items as they now stand.
        read_only: Whether nothing may be written (plan mode).
        max_output_chars: Characters of output that the model will see.
        background: Background processes of the session by shell id.
        foreground: Commands that the user may send there; ``None``: nobody can.
        settings: ``[tools] NAME.KEY`` values of the config.
        checkpointer: Keeps files before they change; ``None``: nothing is kept.
        delegate: Lets other agents work; ``None``: there are none.
        writable: Protected paths that a person has unlocked for this call.
        by_words: Whether a command was allowed for its words, which must mean what they commonly do.
        notes: Notes for later sessions; ``None``: none are kept.
        shell: What commands leave to the next; ``None``: each is a new shell.
    """

    call_id: str
    workspace: Path
    files: FileAccess
    spawner: Spawner
    outputs: OutputKeeper
    progress: Callable[[str], None]
    ask: Ask
    plan: tuple[PlanItem, ...]
    set_plan: Callable[[Sequence[PlanItem]], None]
    read_only: bool = False
    max_output_chars: int = 50_000
    background: dict[str, Process] = field(default_factory=dict[str, Process])
    foreground: Foreground | None = None
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    checkpointer: Checkpointer | None = None
    delegate: Delegate | None = None
    writable: tuple[Path, ...] = ()
    by_words: bool = False
    notes: NoteKeeper | None = None
    write_plan: Callable[[Sequence[PlanItem], str], Sequence[PlanItem]] | None = None
    shell: KeptShell | None = None
