"""The diagnostics log under ``<data>/logs``: rotating, redacted, for the owner only, never on the terminal.

Records of ``aar.*`` follow ``[log] level``; those of libraries count from warning up. What a record says goes
through the redactor after everything was formatted, tracebacks included.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Protocol, TextIO

LOG_NAME = "aar.log"
MAX_BYTES = 1_000_000
FILES = 5
"""Files in all, the current one included."""
_MAX_TRACE_CHARS = 200_000
_TRACE = "aar.trace"

Redact = Callable[[str], str]


class LogSettings(Protocol):
    """The ``[log]`` section, as far as it is used here."""

    @property
    def level(self) -> str:
        """``debug info warning error``."""
        ...

    @property
    def trace(self) -> Sequence[str]:
        """Which traffic is written out: ``llm``, ``mcp``."""
        ...


def setup_logging(log: LogSettings, folder: Path, redact: Redact, *, debug: bool = False) -> Path:
    """Send all logging of the process to the log file and return its path.

    Nothing is opened before the first record. A second call replaces the first.

    Args:
        log: The ``[log]`` section.
        folder: Made (0700) with the first record.
        redact: Takes secrets out of a text. When it fails, the record's text is left out.
        debug: Write everything of ``aar.*``, whatever the level says.
    """
    close_logging()
    handler = _LogFile(folder / LOG_NAME, redact)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    level = logging.DEBUG if debug else logging.getLevelNamesMapping()[log.level.upper()]
    logging.getLogger("aar").setLevel(level)
    for kind in ("llm", "mcp"):
        on = kind in log.trace
        logging.getLogger(f"{_TRACE}.{kind}").setLevel(logging.DEBUG if on else logging.CRITICAL + 1)
    logging.captureWarnings(True)
    return folder / LOG_NAME


def close_logging() -> None:
    """Undo `setup_logging`: close the file and leave the logging module as it was found."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _LogFile)]:
        root.removeHandler(handler)
        handler.close()
        logging.captureWarnings(False)
        for name in ("aar", f"{_TRACE}.llm", f"{_TRACE}.mcp"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def trace_enabled(kind: str) -> bool:
    """Tell whether traffic of ``kind`` (``llm``, ``mcp``) is written out, before a text is made of it."""
    logger = logging.getLogger(f"{_TRACE}.{kind}")
    return logger.level == logging.DEBUG and logger.isEnabledFor(logging.DEBUG)


def trace(kind: str, label: str, payload: str | bytes) -> None:
    """Write traffic of ``kind`` when ``[log] trace`` names it.

    Args:
        kind: ``llm`` or ``mcp``.
        label: Which way and what, such as ``request anthropic/…``.
        payload: What went over the wire; redacted, and cut after 200,000 characters.
    """
    if not trace_enabled(kind):
        return
    text = payload if isinstance(payload, str) else payload.decode("utf-8", "replace")
    if len(text) > _MAX_TRACE_CHARS:
        text = f"{text[:_MAX_TRACE_CHARS]} [{len(text) - _MAX_TRACE_CHARS:,} characters left out]"
    logging.getLogger(f"{_TRACE}.{kind}").debug("%s %s", label, text)


def tail(folder: Path, lines: int) -> list[str]:
    """Return the last ``lines`` lines of the log, oldest first, over rotated files too.

    Escape sequences that got in are still there: sanitise before showing.
    """
    found: list[str] = []
    for number in range(FILES):
        if len(found) >= lines:
            break
        file = folder / (LOG_NAME if number == 0 else f"{LOG_NAME}.{number}")
        try:
            # Each file is bounded by rotation, so that reading it whole is cheap.
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        found = text.split("\n")[: -1 if text.endswith("\n") else None] + found
    return found[max(0, len(found) - lines) :] if lines > 0 else []


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redact: Redact) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")
        self.default_msec_format = "%s.%03d"
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        try:
            text = self._redact(super().format(record))
        except Exception as error:
            text = f"{record.levelname} {record.name}: [left out: redaction failed, {type(error).__name__}]"
        # A line end inside a record must not begin a line that looks like another record.
        return "\n    ".join(text.splitlines())


class _LogFile(RotatingFileHandler):
    """A rotating file that several processes may write, and that never complains on the terminal."""

    def __init__(self, file: Path, redact: Redact) -> None:
        super().__init__(
            file, maxBytes=MAX_BYTES, backupCount=FILES - 1, encoding="utf-8", delay=True, errors="replace"
        )
        self.setFormatter(_RedactingFormatter(redact))

    def _open(self) -> Any:
        file = Path(self.baseFilename)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.fdopen(os.open(file, _FLAGS, 0o600), "a", encoding="utf-8", errors="replace")

    def emit(self, record: logging.LogRecord) -> None:
        self._follow()
        super().emit(record)

    def _follow(self) -> None:
        """Open the file anew when another process has rotated it away."""
        stream: TextIO | None = self.stream
        if stream is None:
            return
        try:
            mine, there = os.fstat(stream.fileno()), Path(self.baseFilename).stat()
            if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
                return
        except OSError:
            pass
        stream.close()
        self.stream = None  # pyright: ignore[reportAttributeAccessIssue] - what delay=True starts with

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the record: a full disk must neither stop a run nor write over the screen."""


_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
