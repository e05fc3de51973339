"""What a slash command answers, as Markdown for the editor."""

from __future__ import annotations

from aar.commands.base import Choice, Failure, Result, Table, Text
from aar.safety.sanitize import sanitize


def draw(result: Result) -> str:
    """Return an answer as Markdown; empty for what is no text."""
    match result:
        case Failure():
            return sanitize(result.sentence)
        case Text():
            return sanitize(result.markdown)
        case Table():
            return _table(result)
        case Choice():
            return _choice(result)
        case _:
            return ""


def _cell(text: str) -> str:
    return sanitize(text, keep_newlines=False).replace("|", "\\|") or " "


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _table(table: Table) -> str:
    count = len(table.columns) or max((len(row) for row in table.rows), default=1)
    columns = table.columns or (" ",) * count
    rule = "|".join("---:" if place in table.right else "---" for place in range(count))
    lines = [f"**{sanitize(table.title, keep_newlines=False)}**", "", _row(columns), f"|{rule}|"]
    lines += [_row(row) for row in table.rows]
    if table.note:
        lines += ["", sanitize(table.note)]
    return "\n".join(lines)


def _choice(choice: Choice) -> str:
    lines = [f"**{sanitize(choice.title, keep_newlines=False)}**", ""]
    for item in choice.items:
        label = sanitize(item.label, keep_newlines=False)
        detail = f" — {sanitize(item.detail, keep_newlines=False)}" if item.detail else ""
        current = " (now)" if item.current else ""
        lines.append(f"- {label}{current}{detail}: `{sanitize(item.command, keep_newlines=False)}`")
    if choice.note:
        lines += ["", sanitize(choice.note)]
    return "\n".join(lines)
