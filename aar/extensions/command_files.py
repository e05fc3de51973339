"""Slash commands from Markdown files: a prompt with places for what the user types behind the name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aar.config.front_matter import Document, markdown_files, words
from aar.protocol.late import late_pattern

_NAME = late_pattern(r"[a-z][a-z0-9_-]{0,63}(?::[a-z0-9][a-z0-9_-]{0,63}){0,4}")
_PLACE = late_pattern(r"\$(?:ARGUMENTS(?:\[(?P<at>\d{1,2})\])?|(?P<number>[1-9]\d?)(?!\w))")
_COMMAND = late_pattern(r"(?<![\w`])!`([^`\n]{1,2000})`")


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A slash command from a file.

    Attributes:
        name: Without the slash; folders below become prefixes with ``:``.
        description: One line of help.
        hint: What may follow the name.
        body: The prompt.
        source: The file.
    """

    name: str
    description: str
    hint: str
    body: str
    source: Path

    def prompt(self, arguments: str) -> str:
        """Return the prompt with ``arguments`` in their places."""
        return fill_in(self.body, arguments)

    def commands(self) -> list[str]:
        """Return the shell commands whose output belongs into the prompt (``!`` before backquotes)."""
        return [match[1].strip() for match in _COMMAND.finditer(self.body)]


def discover(folders: Sequence[tuple[Path, Path | None]]) -> tuple[dict[str, CommandFile], list[str]]:
    """Return all commands below ``folders``, and a sentence for each that is wrong; later folders win."""
    found: dict[str, CommandFile] = {}
    problems: list[str] = []
    for folder, inside in folders:
        for document in markdown_files(folder, inside=inside):
            command = _command(folder, document)
            if isinstance(command, str):
                problems.append(command)
            else:
                found[command.name] = command
    return found, problems


def _command(folder: Path, document: Document) -> CommandFile | str:
    parts = document.path.relative_to(folder).with_suffix("").parts
    name = ":".join(part.lower().replace(" ", "-") for part in parts)
    if not _NAME.fullmatch(name):
        return f"{document.path}: /{name[:60]} is no name of a command; use letters, digits and '-'."
    if not document.body.strip():
        return f"{document.path}: the command has no text; write the prompt below the front matter."
    meta = document.meta
    first = next((line.strip("# ").strip() for line in document.body.splitlines() if line.strip()), "")
    description = " ".join(str(meta.get("description") or first).split())[:200]
    hint: object = meta.get("argument-hint")
    # Written without quotes, ``[file]`` is a list in YAML.
    names = words(hint) if not isinstance(hint, str) else ()
    shown = "[" + ", ".join(names) + "]" if names else _text(hint)
    return CommandFile(name, description, shown, document.body.strip(), document.path)


def _text(value: object) -> str:
    return str(value) if value else ""


def fill_in(body: str, arguments: str) -> str:
    """Return ``body`` with ``$ARGUMENTS`` (all), ``$1`` … ``$99`` and ``$ARGUMENTS[0]`` … replaced.

    Where the text has no place for them, arguments come behind it. What is filled in is not looked at again.
    """
    words = _words(arguments)
    used = False

    def place(match: re.Match[str]) -> str:
        nonlocal used
        used = True
        number = int(match["number"]) - 1 if match["number"] else int(match["at"]) if match["at"] else None
        if number is None:
            return arguments
        return words[number] if number < len(words) else ""

    text = _PLACE.sub(place, body)
    return f"{text}\n\nArguments: {arguments}" if arguments.strip() and not used else text


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def put_outputs(text: str, outputs: dict[str, str]) -> str:
    """Return ``text`` with each command in it replaced by its output."""
    return _COMMAND.sub(lambda match: outputs.get(match[1].strip(), match[0]), text)
