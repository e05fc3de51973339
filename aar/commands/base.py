"""What a slash command is, and what it may answer: data, which each door draws in its own way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aar.protocol.errors import UsageError
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock

if TYPE_CHECKING:
    from aar.commands.registry import Registry
    from aar.core.session import Session
    from aar.runtime.conversation import Conversation
    from aar.runtime.parts import Runtime


@dataclass(frozen=True, slots=True)
class Text:
    """Something to read. ``markdown`` may hold text of models and tools: doors sanitise it."""

    markdown: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells.

    Attributes:
        title: What it shows, in a few words.
        columns: Headings; empty: a list of facts, name and value; a name without a value is a heading.
        rows: Each with as many cells as there are columns.
        note: A sentence below.
        right: Places of the columns that hold numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    right: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """One of several things to choose from.

    Attributes:
        label: Its name.
        command: The command line that choosing it runs, such as ``/model openai/gpt-5``.
        detail: What is known of it.
        current: Whether it holds now.
    """

    label: str
    command: str
    detail: str = ""
    current: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Several things to choose one from. A door without a picker shows the list with its commands."""

    title: str
    items: tuple[ChoiceItem, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class UiAction:
    """Something that only the door itself can do, such as ``quit`` or ``theme``."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Submit:
    """A prompt for the agent.

    Attributes:
        prompt: What is sent; ``@file`` in it is expanded.
        note: Tells the user what is sent, where that is not what they typed.
        facts: Names and texts that are sent with it as they are.
    """

    prompt: str
    note: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    def content(self) -> tuple[ContentBlock, ...]:
        """Return it as `Conversation.submit` takes it."""
        facts = [ResourceBlock(uri=name, text=text) for name, text in self.facts if text.strip()]
        return (*facts, TextBlock(text=self.prompt))


@dataclass(frozen=True, slots=True)
class Failure:
    """It could not be done; ``sentence`` says why and what to do."""

    sentence: str


Result = Text | Table | Choice | UiAction | Submit | Failure


@dataclass(frozen=True)
class HealthCheck:
    """One line of `/doctor`: ``status`` is ``ok``, ``warn`` or ``fail``; ``fix`` says what to do."""

    name: str
    status: str
    detail: str
    fix: str = ""


@dataclass
class Context:
    """What a command may use.

    Attributes:
        conversation: The open session with its agent and runtime.
        registry: All commands, those that were added included.
        actions: Names of the `UiAction` that the door can do; commands that need another one are hidden.
        doctor: Examines the installation, in a thread; ``None`` where the door has no such thing.
    """

    conversation: Conversation
    registry: Registry
    actions: frozenset[str] = frozenset()
    doctor: Callable[[], Sequence[HealthCheck]] | None = None

    @property
    def runtime(self) -> Runtime:
        """All parts."""
        return self.conversation.runtime

    @property
    def session(self) -> Session:
        """The open session."""
        return self.conversation.session


Run = Callable[[Context, str], Awaitable[Result]]
"""Runs a command with the text behind its name, stripped. `AarError` becomes a `Failure`."""
Complete = Callable[[Context, str], Sequence[str]]
"""Returns what the text behind the name may become, best first; called for each key, so it must be quick."""


def no_completion(context: Context, text: str) -> Sequence[str]:
    """Complete nothing."""
    return ()


def always(context: Context) -> bool:
    """Say that a command can be used."""
    return True


@dataclass(frozen=True)
class Command:
    """A slash command.

    Attributes:
        name: Without the slash.
        summary: One line of help.
        run: See `Run`.
        usage: What may follow the name, such as ``[NAME]``.
        group: Heading in the help.
        aliases: Other names.
        complete: See `Complete`.
        action: Name of the `UiAction` that it needs; empty: none.
        available: Whether it can be used now.
        example: One line that shows its use, for the documentation.
    """

    name: str
    summary: str
    run: Run
    usage: str = ""
    group: str = "more"
    aliases: tuple[str, ...] = ()
    complete: Complete = no_completion
    action: str = ""
    available: Callable[[Context], bool] = always
    example: str = ""

    @property
    def title(self) -> str:
        """Name with what may follow it."""
        return f"/{self.name} {self.usage}".rstrip()

    def usable(self, context: Context) -> bool:
        """Tell whether this door, now, can run it."""
        return (not self.action or self.action in context.actions) and self.available(context)


def starting_with(words: Sequence[str], text: str) -> list[str]:
    """Return those of ``words`` that begin with ``text``, then those that hold it."""
    wanted = text.lower()
    first = [word for word in words if word.lower().startswith(wanted)]
    return first + [word for word in words if wanted in word.lower() and word not in first]


def need_idle(context: Context) -> None:
    """Refuse while a run is under way.

    Raises:
        UsageError: One is.
    """
    if context.conversation.running:
        raise UsageError("A run is under way; interrupt it or wait for its end.")


def need_no_argument(argument: str, command: str) -> None:
    """Refuse words behind a command that takes none.

    Raises:
        UsageError: There are some.
    """
    if argument:
        raise UsageError(f"/{command} takes nothing behind it; leave {argument!r} out.")


def fence(text: str, language: str = "") -> str:
    """Return ``text`` as a Markdown code block, whatever backticks it holds."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def one_line(text: str, width: int = 100) -> str:
    """Return ``text`` on one line, cut to ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def money(cost: float | None, *, known: bool = True) -> str:
    """Return an amount of US dollars; a lower bound ends in ``+``."""
    if cost is None:
        return "unknown"
    shown = f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"
    return shown if known else f"{shown}+"
