"""Questions before the start: does the user trust this project, and which model shall answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aar.transports.tui.screens.picker import Picker, Row

TrustAnswer = Literal["yes", "no", "later"]


@dataclass(frozen=True, slots=True)
class TrustFacts:
    """What a project would activate.

    Attributes:
        root: Of the project.
        items: Kind, path and summary of each thing.
        changed: Whether it was trusted before, in another state.
    """

    root: str
    items: Sequence[tuple[str, str, str]]
    changed: bool = False


class TrustScreen(Picker):
    """Asks whether to trust; answers stand on top, what they would let in below."""

    def __init__(self, facts: TrustFacts) -> None:
        rows = [
            Row("no", "No, work without them", "aar asks again when they change", mark=True),
            Row("later", "Not now", "aar asks again next time"),
            Row("yes", "Yes, I have looked at them and trust this project"),
            *(Row(f"item:{place}", path, f"{kind}: {summary}", enabled=False)
              for place, (kind, path, summary) in enumerate(facts.items)),
        ]  # fmt: skip
        again = " since you trusted it" if facts.changed else ""
        what = (
            "has changed what runs or steers aar" if facts.changed else "brings files that run or steer aar"
        )
        super().__init__(
            "Do you trust this project?",
            rows,
            hint=f"{facts.root} {what}{again}; they stand below the answers.",
        )


@dataclass(frozen=True, slots=True)
class ModelWay:
    """A way to a model.

    Attributes:
        model: ``provider/model``; for a key that is missing too.
        title: For people.
        found: What was found here; empty: nothing.
        missing: What would have to be done, where nothing was found.
        asks: What has to be typed still: a key, or a server's address.
    """

    model: str
    title: str
    found: str = ""
    missing: str = ""
    asks: Literal["", "key", "server"] = ""


class FirstRunScreen(Picker):
    """Asks which model answers; what can be used at once stands on top."""

    def __init__(self, ways: Sequence[ModelWay]) -> None:
        ready = sorted(ways, key=lambda way: not way.found)
        rows = [
            Row(
                str(list(ways).index(way)),
                way.title,
                way.found or way.missing,
                enabled=bool(way.found or way.asks),
                mark=place == 0 and bool(way.found),
            )
            for place, way in enumerate(ready)
        ]
        super().__init__(
            "Which model shall answer?",
            rows,
            hint="aar writes your choice into its config file; /model changes it at any time.",
        )
