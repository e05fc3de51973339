"""What ``aar run`` writes: the answer as text, one JSON object, or one event a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from aar.protocol.events import ErrorEvent, Event, ModelSwitch, Notice, Retry, StateEvent
from aar.protocol.state import StopReason
from aar.protocol.usage import Usage
from aar.safety.sanitize import sanitize
from aar.transports.cli import streams

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.transports.cli.failures import Failure

Write = Callable[[str], None]

REASONS = {
    StopReason.MAX_STEPS: "Stopped at the limit of steps.",
    StopReason.TIMEOUT: "Stopped: the time was over.",
    StopReason.BUDGET: "Stopped at the budget.",
    StopReason.CANCELLED: "Cancelled.",
    StopReason.REPETITION: "Stopped: the model repeated itself without progress.",
    StopReason.MAX_TOKENS: "Stopped: the answer was cut at the model's output limit.",
    StopReason.EMPTY: "Stopped: the model gave empty answers.",
    StopReason.REFUSAL: "The model declined to answer.",
    StopReason.DENIED: "Stopped: a call was not allowed; a rule in [permissions] allows more.",
}
"""What is told of a run that did not end by itself, by its reason."""


class Printer(Protocol):
    """Gets every event of the session as it comes, and the result at the end."""

    def event(self, event: Event) -> None:
        """Take one event."""
        ...

    def result(self, result: dict[str, Any], run: RunResult | None) -> None:
        """Take the end: the fields of ``json``, and the run itself unless none could start."""
        ...


def result_fields(run: RunResult) -> dict[str, Any]:
    """Return the object of ``--output json`` (DESIGN 9)."""
    return {
        "session_id": run.session_id,
        "stop_reason": str(run.stop_reason),
        "exit_code": int(run.exit_code),
        "text": run.text,
        "usage": run.usage.model_dump(),
        "cost_usd": run.cost_usd,
        "steps": run.steps,
        "duration_ms": run.duration_ms,
        "file_changes": [change.model_dump() for change in run.file_changes],
        "error": run.error,
    }


def failure_fields(failed: Failure, session_id: str | None = None) -> dict[str, Any]:
    """Return the object of ``--output json`` for a run that could not start."""
    error = None if failed.kind is None else {"kind": str(failed.kind), "message": failed.message}
    return {
        "session_id": session_id,
        "stop_reason": str(failed.stop_reason),
        "exit_code": int(failed.code),
        "text": "",
        "usage": Usage().model_dump(),
        "cost_usd": None,
        "steps": 0,
        "duration_ms": 0,
        "file_changes": [],
        "error": error,
    }


def make_printer(
    output: str, write: Write, *, quiet: bool, colour: bool, before_line: Callable[[], None]
) -> Printer:
    """Return the printer for ``--output``; ``write`` takes what goes to standard output."""
    if output == "json":
        return JsonPrinter(write)
    if output == "stream-json":
        return StreamJsonPrinter(write)
    return TextPrinter(write, quiet=quiet, colour=colour, before_line=before_line)


class JsonPrinter:
    """One JSON object at the end, also after a failure."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def event(self, event: Event) -> None:
        """Nothing is shown before the end."""

    def result(self, result: dict[str, Any], run: RunResult | None) -> None:
        """Write the object."""
        self._write(json.dumps(result, ensure_ascii=False) + "\n")


class StreamJsonPrinter:
    """Every event as a line of compact JSON, flushed one by one; the last line is the result."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def event(self, event: Event) -> None:
        """Write the event."""
        self._write(event.to_json() + "\n")

    def result(self, result: dict[str, Any], run: RunResult | None) -> None:
        """Write the last line."""
        line = {"type": "result", "seq": None, **result}
        self._write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


class TextPrinter:
    """The answer on standard output; what happened meanwhile on standard error."""

    def __init__(
        self,
        write: Write,
        *,
        quiet: bool = False,
        colour: bool = False,
        before_line: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self._quiet = quiet
        self._colour = colour
        self._before_line = before_line

    def event(self, event: Event) -> None:
        """Show notices, retries and errors."""
        match event:
            case Notice() if event.code == "provider_progress":
                pass
            case Notice():
                self._note(event.message, important=event.level != "info")
            case Retry():
                wait = f"again in {event.delay_s:.1f} s" if event.delay_s else "again"
                self._note(f"{event.message} Trying {wait} (attempt {event.attempt} failed).")
            case ModelSwitch():
                self._note(f"{event.reason} Going on with {event.to_model}.", important=True)
            case ErrorEvent():
                self._note(event.message, important=True)
            case StateEvent() if event.stop_reason is StopReason.VERIFIED:
                self._note("Verified: the check passes.")
            case StateEvent() if event.stop_reason is StopReason.CANCELLED and event.run_id is None:
                self._note("The last run of this session was cut off; what it had stored is here.")
            case StateEvent() if event.stop_reason is not None and event.stop_reason in REASONS:
                self._note(REASONS[event.stop_reason], important=True)
            case _:
                pass

    def result(self, result: dict[str, Any], run: RunResult | None) -> None:
        """Show the diffs, then the answer."""
        if run is None:
            return
        if not self._quiet:
            self._diffs(run.diffs)
        text = run.text.strip("\r\n").rstrip() or _changes(run)
        if text:
            self._before_line()
            self._write((sanitize(text) if sys.stdout.isatty() else text) + "\n")
        if not self._quiet:
            self._note(f"Session {run.session_id}")

    def _diffs(self, diffs: Iterable[str]) -> None:
        for diff in diffs:
            for line in sanitize(diff).splitlines():
                self._line(self._coloured(line))

    def _coloured(self, line: str) -> str:
        if not self._colour:
            return line
        if line.startswith(("+++", "---")):
            return f"\x1b[1m{line}\x1b[0m"
        codes = {"+": "32", "-": "31", "@": "36"}
        code = codes.get(line[:1])
        return f"\x1b[{code}m{line}\x1b[0m" if code else line

    def _note(self, text: str, *, important: bool = False) -> None:
        if important or not self._quiet:
            self._line(f"aar: {sanitize(text)}")

    def _line(self, text: str) -> None:
        self._before_line()
        streams.write(sys.stderr, text + "\n")


def _changes(run: RunResult) -> str:
    """Return a line for each changed file, for models that say nothing besides."""
    words = {"create": "Created", "modify": "Changed", "delete": "Deleted", "rename": "Renamed"}
    return "\n".join(
        f"{words[change.action]} {change.path} (+{change.added} -{change.removed})"
        for change in run.file_changes
    )
