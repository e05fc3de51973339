"""Textual's driver for a terminal that may go away or stand still.

Textual's own writer ends at the first error, and then the event loop waits for it for ever; its reader takes
the end of the terminal for a pause. Here both tell the app, and no write holds the end up.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual import events
from textual.drivers.linux_driver import LinuxDriver

from aar.transports.tui.pasting import END, Pasted, PasteReader
from aar.transports.tui.steady import steady
from aar.transports.tui.terminal import screen_fd
from aar.transports.tui.textual_private import QuietFocus, no_letter

if TYPE_CHECKING:
    from textual._xterm_parser import XTermParser
    from textual.app import App

_LOOK_S = 0.1
_READ_BYTES = 4096
_GATHERED = 1 << 15
_LAST_S = 1.0
"""Seconds that the last bytes have to reach a terminal that stands still."""


class PatientOutput:
    """Writes to a terminal, never longer than it is told to wait, and without an error when there is none.

    Args:
        fd: Of the terminal.
        gone: Called once, from the thread that writes, when the terminal does not exist any more.
    """

    def __init__(self, fd: int, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._parts: list[str] = []
        self._size = 0
        self._lost = False
        self._until = float("inf")
        try:
            # An open file of our own: the shell's must stay one that waits.
            own = os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            own = fd
        self._fd = own

    def write(self, text: str) -> None:
        """Keep ``text`` until `flush`, or until much has gathered."""
        self._parts.append(text)
        self._size += len(text)
        if self._size > _GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write what has gathered; nothing where the terminal is gone."""
        data = memoryview("".join(self._parts).encode("utf-8", "replace"))
        self._parts, self._size = [], 0
        while data and not self._lost:
            try:
                if select.select([], [self._fd], [], _LOOK_S)[1]:
                    data = data[os.write(self._fd, data[:_READ_BYTES]) :]
                    continue
            except BlockingIOError:
                time.sleep(_LOOK_S / 10)
            except (OSError, ValueError):
                self._lost = True
                self._gone()
                return
            if time.monotonic() > self._until:
                return

    def give_up_soon(self) -> None:
        """Throw away what the terminal does not take within a second."""
        self._until = min(self._until, time.monotonic() + _LAST_S)

    def take_time(self) -> None:
        """Wait for the terminal again: the process goes on after it was suspended."""
        self._until = float("inf")


class TerminalDriver(LinuxDriver):
    """Tells the app when the terminal is gone, and ends in bounded time."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._output = PatientOutput(screen_fd(), self._lost)
        self._file = cast("TextIO", self._output)

    def write(self, data: str) -> None:
        """Write text and sequences, in columns that hold."""
        super().write(steady(data))

    def give_up_soon(self) -> None:
        """Wait no longer for a terminal that stands still; from a signal handler too."""
        self._output.give_up_soon()

    def close(self) -> None:
        """Write the rest if that goes quickly."""
        self.give_up_soon()
        super().close()

    def start_application_mode(self) -> None:
        """Begin, or go on after the process was suspended."""
        self._output.take_time()
        super().start_application_mode()

    def _sigtstp_application(self, *_: object) -> None:
        """Stop as Ctrl+Z at a terminal does: with a script around aar, for which a shell waits."""
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        ours = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        os.killpg(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        os.kill(os.getpid(), signal.SIGSTOP)

    def run_input_thread(self) -> None:
        """Hand on what is typed until the end of the app, or of the terminal."""
        from textual._parser import ParseError
        from textual._xterm_parser import XTermParser

        parser, pastes = XTermParser(self._debug), PasteReader()
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            try:
                if select.select([self.fileno], [], [], _LOOK_S)[0]:
                    data = os.read(self.fileno, _READ_BYTES)
                    if not data:
                        raise EOFError
                    for piece in pastes.feed(decode(data)):
                        self._hand_on(parser, piece)
            except (OSError, EOFError):
                self._lost()
                break
            for message in parser.tick():
                self.process_message(no_letter(message))
        with contextlib.suppress(EOFError, ParseError):
            list(parser.feed(""))

    def _hand_on(self, parser: XTermParser, piece: str | Pasted) -> None:
        if isinstance(piece, Pasted):
            # The parser has seen where the paste begins; for it there was nothing in it.
            list(parser.feed(END))
            self.process_message(events.Paste(piece.text.replace("\0", "")))
            return
        for message in parser.feed(piece):
            self.process_message(no_letter(message))

    def _lost(self) -> None:
        app = self._app
        if isinstance(app, QuietFocus):
            # The loop may be closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(app.terminal_gone)
