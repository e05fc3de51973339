"""Signs of the steps of a plan or list, the same wherever steps are shown."""

from __future__ import annotations

_SIGNS = {
    "done": ("☑", "ok", "muted strike", "done:"),
    "completed": ("☑", "ok", "muted strike", "done:"),
    "in_progress": ("▸", "busy", "strong", "now:"),
    "active": ("▸", "busy", "strong", "now:"),
    "executing": ("▸", "busy", "strong", "now:"),
    "skipped": ("–", "muted", "muted", "left out:"),
    "cancelled": ("◦", "muted", "muted strike", "stopped:"),
    "failed": ("✗", "bad", "", "failed:"),
    "blocked": ("!", "warn", "", "blocked:"),
}
_OPEN = ("☐", "muted", "", "to do:")
DONE = frozenset({"done", "completed"})
AT_WORK = frozenset({"in_progress", "active", "executing"})


def step_look(status: str, *, plain: bool = False) -> tuple[str, str, str]:
    """Return sign (in words when ``plain``), role of the sign and role of the title of a step."""
    sign, tone, role, word = _SIGNS.get(status, _OPEN)
    return word if plain else sign, tone, role
