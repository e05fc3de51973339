"""Plans as text: Markdown that people edit and that is read back, Mermaid, and a short view."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from aar.protocol.errors import PlanningError, UsageError
from aar.protocol.events import PlanEvent, PlanItem
from aar.tools.builtin.planning_graph import graph_problem
from aar.tools.criteria import settled

_TITLE: Final = re.compile(r"#\s+(?:Plan:\s*)?(.*)")
_STEP: Final = re.compile(r"##\s+(\S+?)\.\s+(.*\S)\s*")
_FIELD: Final = re.compile(r"(after|agent|files|read only|done when|state|failures):\s*(.*)", re.IGNORECASE)
_STATES: Final = frozenset(("pending", "executing", "completed", "failed", "blocked", "skipped", "cancelled"))
_MARKS: Final = {
    "completed": "✓",
    "executing": "▸",
    "in_progress": "▸",
    "failed": "✗",
    "blocked": "⊘",
    "skipped": "–",
    "cancelled": "–",
}
_COLOURS: Final = {
    "completed": "fill:#d3f9d8,stroke:#2b8a3e",
    "executing": "fill:#d0ebff,stroke:#1864ab",
    "failed": "fill:#ffe3e3,stroke:#c92a2a",
    "blocked": "fill:#fff3bf,stroke:#e67700",
    "skipped": "fill:#f1f3f5,stroke:#868e96",
    "cancelled": "fill:#f1f3f5,stroke:#868e96",
}


def to_markdown(plan: PlanEvent) -> str:
    """Return ``plan`` as Markdown that `from_markdown` reads back."""
    parts = [f"# Plan: {_one_line(plan.goal)}".rstrip()]
    for item in plan.items:
        head = [f"## {item.id}. {_one_line(item.title)}", *_fields(item)]
        detail = "\n".join(_escaped(line) for line in item.detail.strip().splitlines())
        parts.append("\n".join(head) + (f"\n\n{detail}" if detail else ""))
    return "\n\n".join(parts) + "\n"


def _fields(item: PlanItem) -> Iterator[str]:
    if item.depends_on:
        yield f"after: {', '.join(item.depends_on)}"
    if item.agent:
        yield f"agent: {item.agent}"
    if item.files:
        yield f"files: {', '.join(item.files)}"
    if item.read_only:
        yield "read only: yes"
    if item.done_when:
        yield f"done when: {_one_line(item.done_when)}"
    if item.status != "pending":
        yield f"state: {item.status}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(line: str) -> str:
    """Keep a line of a detail from being taken for a heading."""
    return f"\\{line}" if line.lstrip("\\").startswith("#") else line


def _plain(line: str) -> str:
    return line[1:] if line.startswith("\\") and line.lstrip("\\").startswith("#") else line


def from_markdown(text: str, workspace: Path) -> tuple[str, tuple[PlanItem, ...]]:
    """Read goal and steps of a plan.

    Args:
        text: Markdown as `to_markdown` writes it: a heading ``## ID. Title`` for each step, then lines such
            as ``after: 1, 2`` and ``done when: COMMAND``, an empty line, and the detail.
        workspace: Where programs of checks lie.

    Raises:
        PlanningError: It holds no steps, or they cannot be run; the sentence says which and why.
    """
    goal, sections = _sections(text)
    if not sections:
        raise PlanningError("The plan has no steps; write each as `## 1. Title`.")
    items = tuple(_step(name, title, lines, workspace) for name, title, lines in sections)
    problem = graph_problem(items)
    if problem:
        raise PlanningError(problem)
    return goal, items


def _sections(text: str) -> tuple[str, list[tuple[str, str, list[str]]]]:
    goal = ""
    sections: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if step := _STEP.fullmatch(line):
            sections.append((step[1], step[2], []))
        elif sections:
            sections[-1][2].append(line)
        elif title := _TITLE.fullmatch(line):
            goal = title[1].strip()
    return goal, sections


def _step(name: str, title: str, lines: Sequence[str], workspace: Path) -> PlanItem:
    fields: dict[str, str] = {}
    rest = list(lines)
    while rest and (field := _FIELD.fullmatch(rest[0].strip())):
        fields[field[1].lower()] = field[2].strip()
        rest.pop(0)
    if rest and rest[0].strip():
        raise PlanningError(
            f"Step {name}: {rest[0].strip()[:60]!r} is no field (after, agent, files, read only, done when, "
            "state); leave an empty line before the detail."
        )
    state = fields.get("state", "pending").lower()
    if state not in _STATES:
        raise PlanningError(
            f"Step {name}: there is no state {state!r}; states are {', '.join(sorted(_STATES))}."
        )
    check = fields.get("done when", "")
    try:
        done_when = settled(check, workspace) if check else None
    except UsageError as error:
        raise PlanningError(f"Step {name}: {error}") from error
    return PlanItem(
        id=name,
        title=title,
        status=state,
        depends_on=_list(fields.get("after", "")),
        done_when=done_when,
        detail="\n".join(_plain(line) for line in rest).strip(),
        agent=fields.get("agent") or None,
        files=_list(fields.get("files", "")),
        read_only=fields.get("read only", "").lower() in ("yes", "true", "y"),
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def to_mermaid(plan: PlanEvent) -> str:
    """Return ``plan`` as a Mermaid flowchart; an arrow leads from a step to those that need it."""
    places = {item.id: f"s{place}" for place, item in enumerate(plan.items, 1)}
    lines = ["flowchart TD"]
    lines += [f'    {places[item.id]}["{_label(f"{item.id}. {item.title}")}"]' for item in plan.items]
    lines += [
        f"    {places[needed]} --> {places[item.id]}"
        for item in plan.items
        for needed in item.depends_on
        if needed in places
    ]
    used = [state for state in _COLOURS if any(item.status == state for item in plan.items)]
    for state in used:
        members = ",".join(places[item.id] for item in plan.items if item.status == state)
        lines += [f"    classDef {state} {_COLOURS[state]}", f"    class {members} {state}"]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Return ``text`` so that nothing of it acts in a quoted label."""
    return "".join(
        char if char.isalnum() or char in " .,:-_/()+=!?*'" else f"#{ord(char)};" for char in _one_line(text)
    )


def view(plan: PlanEvent, *, width: int = 200) -> str:
    """Return ``plan`` as people read it: one line a step, with what is known of it."""
    done = sum(item.status == "completed" for item in plan.items)
    head = f"{plan.goal or 'Plan'} ({plan.stage}, {done} of {len(plan.items)} done)"
    lines = [_one_line(head)]
    for item in plan.items:
        facts = [item.status] if item.status not in ("pending", "completed") else []
        facts += [f"after {', '.join(item.depends_on)}"] if item.depends_on else []
        facts += [item.agent] if item.agent else []
        facts += ["reads only"] if item.read_only else []
        facts += [f"done when {_one_line(item.done_when)[:width]}"] if item.done_when else []
        tail = f" — {'; '.join(facts)}" if facts else ""
        lines.append(f"{_MARKS.get(item.status, '·')} {item.id}. {_one_line(item.title)}{tail}")
        if item.note and item.status not in ("pending", "completed"):
            lines.append(f"    {_one_line(item.note)[:width]}")
    return "\n".join(lines)
