"""Write the tables of ``docs/commands.md`` from the registry of slash commands.

``python docs/generate_commands.py`` prints them; with ``--write`` they replace those in the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aar.commands.base import Command
from aar.commands.registry import GROUPS, commands

PAGE = Path(__file__).resolve().parent / "commands.md"
BEGIN = "<!-- tables: python docs/generate_commands.py --write -->"
END = "<!-- end of tables -->"


def tables() -> str:
    """Return a table for each group of commands."""
    parts: list[str] = []
    for group, title in GROUPS.items():
        rows = [_row(command) for command in commands() if command.group == group]
        if rows:
            head = "| command | does | for example |\n|---|---|---|"
            parts.append("\n".join((f"### {title}", "", head, *rows, "")))
    return "\n".join(parts)


def _row(command: Command) -> str:
    usage = command.title.replace("|", "\\|")
    aliases = "".join(f", `/{name}`" for name in command.aliases)
    example = f"`{command.example}`" if command.example else ""
    return f"| `{usage}`{aliases} | {command.summary} | {example} |"


def page(text: str) -> str:
    """Return the page with its tables replaced."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n\n{tables()}\n{text[end:]}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(tables() + "\n")
