"""All slash commands by name. Doors hand a line that begins with a slash to `Registry.run_line`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from aar.commands.base import Command, Context, Failure, Result
from aar.protocol.errors import AarError, UsageError

GROUPS: Mapping[str, str] = {
    "session": "The session",
    "model": "The model",
    "work": "Work",
    "safety": "What may run, and why",
    "look": "Looking around",
    "screen": "The screen",
    "more": "More",
}
"""Groups of commands with their headings in the help, in order."""


@cache
def commands() -> tuple[Command, ...]:
    """Return the commands that come with aar, in the order of the help."""
    from aar.commands import (
        agents,
        alternatives,
        ask,
        changes,
        context,
        costs,
        explain,
        export,
        extensions,
        history,
        mcp,
        memory,
        model,
        plan,
        review,
        safety,
        screen,
        sessions,
        setup,
        shells,
        voice,
        work,
    )

    families = (
        sessions,
        export,
        model,
        extensions,
        agents,
        mcp,
        ask,
        review,
        alternatives,
        work,
        shells,
        plan,
        history,
        changes,
        safety,
        explain,
        memory,
        costs,
        setup,
        context,
        screen,
        voice,
    )
    found = [command for family in families for command in family.commands()]
    order = list(GROUPS)
    return tuple(sorted(found, key=lambda command: order.index(command.group)))


def find(name: str) -> Command | None:
    """Return the built-in command with this name or alias; a slash before it does not matter."""
    return Registry().find(name)


def is_command_line(text: str) -> bool:
    """Tell whether ``text`` is meant as a command: ``/word …``, and not a path such as ``/etc/hosts``."""
    word = text.split(maxsplit=1)[0] if text[:1] == "/" and text.strip() else ""
    return len(word) > 1 and "/" not in word[1:] and word[1:2].isalpha() and "." not in word


class Registry:
    """Commands by name: the built-in ones, and those that were added.

    Args:
        more: Commands of extensions; a name that is taken already is refused.
    """

    def __init__(self, more: Iterable[Command] = ()) -> None:
        self._commands = list(commands())
        self._by_name = {name: item for item in self._commands for name in (item.name, *item.aliases)}
        for command in more:
            self.add(command)

    def add(self, command: Command) -> None:
        """Add a command.

        Raises:
            UsageError: Its name is taken. Its aliases are left out where they are.
        """
        if command.name in self._by_name:
            raise UsageError(f"There is a command /{command.name} already; give this one another name.")
        self._commands.append(command)
        for name in (command.name, *command.aliases):
            self._by_name.setdefault(name, command)

    def remove(self, name: str) -> None:
        """Take a command out that was added; nothing happens where there is none."""
        command = self._by_name.get(name)
        if command is not None:
            self._commands.remove(command)
            self._by_name = {known: item for known, item in self._by_name.items() if item is not command}

    def all(self, context: Context | None = None) -> list[Command]:
        """Return all commands; with a context those that can be used in it."""
        return [item for item in self._commands if context is None or item.usable(context)]

    def find(self, name: str) -> Command | None:
        """Return the command with this name or alias."""
        return self._by_name.get(name.strip().removeprefix("/").lower())

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Return the names that are most like ``name``."""
        import difflib

        wanted = name.strip().removeprefix("/").lower()
        near = difflib.get_close_matches(wanted, list(self._by_name), count, 0.5)
        started = [known for known in self._by_name if wanted and known.startswith(wanted)]
        found = [self._by_name[known].name for known in (*started, *near)]
        return list(dict.fromkeys(found))[:count]

    def complete(self, context: Context, line: str) -> list[str]:
        """Return whole command lines that ``line`` may become, best first."""
        word, space, rest = line.partition(" ")
        if not space:
            wanted = word.removeprefix("/").lower()
            usable = self.all(context)
            names = [item.name for item in usable if item.name.startswith(wanted)]
            aliases = [name for item in usable for name in item.aliases if name.startswith(wanted)]
            inside = [item.name for item in usable if wanted in item.name]
            return [f"/{name}" for name in dict.fromkeys((*names, *aliases, *inside))]
        command = self.find(word)
        if command is None or not command.usable(context):
            return []
        return [f"{word} {text}" for text in command.complete(context, rest.lstrip())]

    async def run_line(self, context: Context, line: str) -> Result:
        """Run ``/name argument``; whatever goes wrong is a `Failure` with one sentence."""
        word, _, argument = line.strip().partition(" ")
        if "\n" in word:
            word, _, argument = line.strip().partition("\n")
        command = self.find(word)
        if command is None or not command.usable(context):
            return Failure(self._unknown(word, command))
        try:
            return await command.run(context, argument.strip())
        except AarError as error:
            return Failure(str(error))
        except Exception as error:
            from aar.runtime.base import log_failure

            log_failure(f"the command /{command.name} failed", error)
            problem = f"/{command.name} failed inside ({type(error).__name__}: {error})."
            return Failure(f"{problem} `aar logs` has the details.")

    def _unknown(self, word: str, command: Command | None) -> str:
        if command is not None:
            return f"/{command.name} cannot be used here."
        near = self.nearest(word)
        hint = f"Did you mean {_either(near)}?" if near else "/help lists all commands."
        return f"There is no command {word}. {hint}"


def _either(names: Sequence[str]) -> str:
    shown = [f"/{name}" for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
