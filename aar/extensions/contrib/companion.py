"""A companion that lives beside your work: mood, level and experience, kept over sessions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from aar.extensions.api import ExtensionAPI, ExtensionContext, HookEvent, PanelLine

AAR_API = "1.0"

_LEVELS = (0, 5, 15, 30, 50)
"""Experience at which each of the first levels begins; after these every 30 points are one more."""
_FACES = {
    "happy": "(^‿^)",
    "sleeping": "(-.-)zzZ",
    "focused": "(•_•)",
    "thinking": "(o.O)?",
    "excited": "\\(^o^)/",
    "stressed": "(>_<)",
    "level up": "*(^▽^)*",
}
_FAILURES_THAT_STRESS = 3


@dataclass
class State:
    """What is kept of the companion.

    Attributes:
        name: That the user gave it.
        xp: Points: one for a tool call that worked, five for a plan step that is done.
        mood: A key of the faces.
        failures: Failed calls in a row.
    """

    name: str = "Bit"
    xp: int = 0
    mood: str = "sleeping"
    failures: int = 0


def level_of(xp: int) -> int:
    """Return the level, from 1."""
    if xp >= _LEVELS[-1]:
        return len(_LEVELS) + (xp - _LEVELS[-1]) // 30
    return sum(xp >= start for start in _LEVELS)


def bounds_of(level: int) -> tuple[int, int]:
    """Return the points at which ``level`` begins and ends."""
    starts = [*_LEVELS, *(_LEVELS[-1] + 30 * step for step in range(1, level - len(_LEVELS) + 2))]
    return starts[level - 1], starts[level]


def read_state(file: Path, name: str) -> State:
    """Return the kept state; a file that is not readable counts as none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return State(str(found["name"])[:20], max(0, int(found["xp"])))
    except (OSError, ValueError, KeyError, TypeError):
        return State(name)


class Companion:
    """The companion of one process.

    Args:
        api: Of the extension.
    """

    def __init__(self, api: ExtensionAPI) -> None:
        self._api = api
        self._file = api.data_folder / "companion.json"
        self.state = read_state(self._file, str(api.settings.get("name", "Bit"))[:20])

    def feel(self, mood: str) -> None:
        """Change the mood."""
        self.state.mood = mood
        self._api.refresh_panels()

    def gain(self, points: int) -> None:
        """Get experience, and keep it."""
        before = level_of(self.state.xp)
        self.state.xp += points
        if level_of(self.state.xp) > before:
            self.feel("level up")
        self._file.write_text(json.dumps(asdict(self.state)), encoding="utf-8")

    def worked(self, *, well: bool) -> None:
        """Take note of a tool call."""
        self.state.failures = 0 if well else self.state.failures + 1
        if well:
            self.gain(1)
        else:
            self.feel("stressed" if self.state.failures >= _FAILURES_THAT_STRESS else "thinking")

    def told(self) -> str:
        """Return how it is."""
        state = self.state
        return (
            f"{state.name} {_FACES[state.mood]} is {state.mood}: level {level_of(state.xp)}, {state.xp} XP."
        )

    def lines(self) -> list[PanelLine]:
        """Return what the panel shows."""
        state, level = self.state, level_of(self.state.xp)
        start, end = bounds_of(level)
        bad, good = state.mood == "stressed", state.mood in ("happy", "level up")
        return [
            PanelLine(f"{state.name} {_FACES[state.mood]}", tone="accent"),
            PanelLine("mood", "field", state.mood, tone="bad" if bad else "good" if good else "plain"),
            PanelLine("level", "field", str(level)),
            PanelLine("XP", "gauge", amount=(state.xp - start) / (end - start), tone="accent"),
            PanelLine("let it rest", "action", "/companion rest", tone="muted"),
        ]


def register(api: ExtensionAPI) -> None:
    """Let the companion live."""
    companion = Companion(api)
    add_hooks(api, companion)

    @api.command(
        "companion", summary="Look after the companion, or give it a name.", usage="[rest|name NAME]"
    )
    def look_after(argument: str, context: ExtensionContext) -> str:
        verb, _, rest = argument.partition(" ")
        if verb == "name" and rest.strip():
            companion.state.name = " ".join(rest.split())[:20]
            companion.gain(0)
            companion.feel("happy")
        elif verb == "rest":
            companion.feel("sleeping")
        return companion.told()

    @api.panel("companion", title="Companion")
    def panel(context: ExtensionContext) -> list[PanelLine]:
        return companion.lines()


def add_hooks(api: ExtensionAPI, companion: Companion) -> None:
    """Let the companion hear of the work."""

    @api.on("prompt_submit")
    def listens(event: HookEvent, context: ExtensionContext) -> None:
        companion.state.failures = 0
        companion.feel("thinking")

    @api.on("before_tool")
    def watches(event: HookEvent, context: ExtensionContext) -> None:
        companion.feel("focused")

    @api.on("after_tool")
    def learns(event: HookEvent, context: ExtensionContext) -> None:
        companion.worked(well=not event.data.get("is_error"))

    @api.on("plan_step_done")
    def cheers(event: HookEvent, context: ExtensionContext) -> None:
        companion.feel("excited")
        companion.gain(5)

    @api.on("stop")
    def rests(event: HookEvent, context: ExtensionContext) -> None:
        if companion.state.mood != "level up":
            companion.feel("happy")

    @api.on("error")
    def worries(event: HookEvent, context: ExtensionContext) -> None:
        companion.feel("stressed")
