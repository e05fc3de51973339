"""Whether a run that fails its check again and again gets anywhere."""

from __future__ import annotations

from typing import Final, Literal

SAME_FAILURES: Final = 3
"""Equal failures after which the model is told to try something else."""
NUDGE: Final = (
    "The check has failed in the same way {count} times, so what you try does not touch the cause. Stop and "
    "think anew: say what you assumed and could be wrong about, look at something that you have not looked "
    "at yet, then take a different approach."
)

Finding = Literal["go on", "nudge", "stuck"]


class StuckWatch:
    """Counts equal failures of the checks of one run: three earn a nudge, the next one means stuck."""

    def __init__(self) -> None:
        self._last: str = ""
        self._nudged = False
        self.same = 0
        self.idle = 0

    def acted(self) -> None:
        """Take note that something was done that may change the world."""
        self.idle = 0

    def failed(self, signature: str) -> Finding:
        """Count a failure and tell what it means."""
        if signature != self._last:
            self._last, self.same, self.idle, self._nudged = signature, 0, 0, False
        self.same += 1
        self.idle += 1
        if self.same < SAME_FAILURES:
            return "go on"
        if not self._nudged:
            self._nudged = True
            return "nudge"
        return "stuck"

    def start_over(self) -> None:
        """Begin to count anew: somebody said how to go on."""
        self._last, self.same, self.idle, self._nudged = "", 0, 0, False

    @property
    def hopeless(self) -> bool:
        """Whether nothing at all was done between the equal failures."""
        return self.idle > SAME_FAILURES
