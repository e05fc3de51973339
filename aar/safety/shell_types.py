"""What a shell command consists of, as the policy sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 200_000
"""Longer commands are not judged part by part: they are denied."""
MAX_COMMANDS = 10_000
"""More simple commands than this are not judged one by one: they are denied."""
MAX_DEPTH = 12
"""Commands inside commands (``bash -c "bash -c …"``) deeper than this are denied."""


def words(text: str) -> frozenset[str]:
    """Return the words of ``text`` as a set: long tables stay readable."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Redirection:
    """A redirection of a command.

    Attributes:
        operator: As written, without the descriptor: ``>``, ``>>``, ``<``, ``&>`` …
        target: File name with quotes resolved.
        static: Whether the target is known without running anything.
        start: Offset in the text, which orders it among ``cd`` commands.
    """

    operator: str
    target: str
    static: bool
    start: int = 0

    @property
    def duplicates(self) -> bool:
        """Whether it only points one descriptor at another (``2>&1``), or closes one."""
        return self.operator in {">&", "<&"} and self.target.rstrip("-").isdigit() | (self.target == "-")

    @property
    def writes(self) -> bool:
        """Whether a file is opened for writing."""
        return ">" in self.operator and not self.duplicates

    @property
    def reads(self) -> bool:
        """Whether a file is opened for reading."""
        return self.operator in {"<", "<>"}


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command with its words.

    Attributes:
        argv: Words with quotes resolved; a word that is not static stands there as it is written.
        static: Whether every word is known without running anything.
        name_static: Whether the first word is.
        globs: Indexes of words that hold an unquoted ``*``, ``?`` or ``[``.
        inner: Commands that this one starts (``timeout 5 CMD``, ``bash -c "CMD"``, ``find -exec CMD``).
        transparent: Whether this command does nothing but run ``inner``, so that it may be judged by them.
        reasons: Why it cannot be called plain (a wrapper that is not understood …).
        redirections: In the texts of commands that it starts.
        start: Offset in the text.
        then: Operator that follows: ``&&``, ``||``, ``;``, ``|``, newline or nothing.
    """

    argv: tuple[str, ...]
    static: bool = True
    name_static: bool = True
    globs: frozenset[int] = frozenset()
    inner: tuple[SimpleCommand, ...] = ()
    transparent: bool = False
    reasons: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    start: int = 0
    then: str = ""

    @property
    def name(self) -> str:
        """Base name of the program, without its folder."""
        return self.argv[0].rsplit("/", 1)[-1] if self.argv else ""

    @property
    def text(self) -> str:
        """The words joined by one space: what rules are matched against."""
        return " ".join(self.argv)

    def walk(self) -> Iterator[SimpleCommand]:
        """Yield this command and every command inside."""
        stack: list[SimpleCommand] = [self]
        while stack:
            command = stack.pop()
            yield command
            stack.extend(reversed(command.inner))


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A whole command line.

    Attributes:
        text: As the shell gets it.
        commands: Every simple command of it, those in substitutions, subshells and loops included.
        redirections: Every redirection.
        syntax: What makes it more than plain words and operators, one sentence each.
        reasons: The same, and what its commands themselves hide (wrappers, ``eval`` …); empty when plain.
        broken: Whether it could not be read as shell syntax.
        too_large: Whether it is too large to judge every part.
    """

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    syntax: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    broken: bool = False
    too_large: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is only simple commands of known words, joined by ``&& || ; |`` or newlines."""
        return not self.reasons and not self.broken and not self.too_large

    def walk(self) -> Iterator[SimpleCommand]:
        """Yield every simple command, those that others start included."""
        for command in self.commands:
            yield from command.walk()
