"""Every way in which a command can fail, as one sentence and one exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aar.protocol.errors import AarError, ErrorKind, StorageError, error_kind
from aar.protocol.state import ExitCode, StopReason


class Interrupted(BaseException):
    """A signal ended the command before it could end by itself.

    Attributes:
        signal_number: Which one.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told about a command that failed.

    Attributes:
        kind: Kind of error; ``None`` when it was cancelled.
        message: One sentence.
        code: Exit code.
        stop_reason: For the object of ``aar run --output json``.
    """

    kind: ErrorKind | None
    message: str
    code: int
    stop_reason: StopReason = StopReason.ERROR


def failure(error: BaseException) -> Failure:
    """Describe what ended a command. A defect of aar goes into the diagnostics log, traceback and all."""
    if isinstance(error, Interrupted):
        return Failure(None, "Ended by a signal.", 128 + error.signal_number, StopReason.CANCELLED)
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ in ("CancelledError", "Abort"):
        return Failure(None, "Cancelled.", ExitCode.CANCELLED, StopReason.CANCELLED)
    if isinstance(error, StorageError):
        # Nothing was sent: the command could not begin with these files.
        return Failure(ErrorKind.STORAGE, str(error), ExitCode.CONFIGURATION)
    if isinstance(error, AarError):
        return Failure(error_kind(error), str(error), error.exit_code)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename} cannot be used: {error.strerror or error}."
        return Failure(ErrorKind.STORAGE, message, ExitCode.INTERNAL)
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        message = "No folder for temporary files can be written; make room in /tmp, or set TMPDIR to one."
        return Failure(ErrorKind.STORAGE, message, ExitCode.CONFIGURATION)
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        message = "The present folder was removed; change to one that exists."
        return Failure(ErrorKind.CONFIGURATION, message, ExitCode.CONFIGURATION)
    logged = _log(error)
    more = " `aar logs` has the details." if logged else ""
    message = f"aar failed inside ({type(error).__name__}: {error}).{more}"
    return Failure(ErrorKind.INTERNAL, message, ExitCode.INTERNAL)


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _log(error: BaseException) -> bool:
    """Write a defect into the log, and never to the terminal; tell whether there is a log."""
    import logging

    if not logging.getLogger().handlers:
        try:
            from aar.config.paths import paths
            from aar.config.schema import Config
            from aar.runtime import start_log

            start_log(Config(), paths())
        except Exception:
            return False
    logging.getLogger("aar").error("a command failed", exc_info=error)
    return True
