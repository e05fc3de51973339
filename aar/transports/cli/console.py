"""Writing to the terminal from the small commands: plain text, aligned, safe, without a library."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NoReturn, TextIO

from aar.protocol.errors import AarError, UsageError
from aar.protocol.state import ExitCode

Sanitize = Callable[[str], str]
Style = Literal["bold", "dim", "red", "green", "yellow"]

_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Console:
    """Standard output and standard error of a command.

    Attributes:
        interactive: Whether a person sees standard error, so that progress may be drawn on it.
    """

    def __init__(
        self,
        sanitize: Sanitize,
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Bind the console to its streams.

        Args:
            sanitize: Makes text of others harmless for a terminal; line ends must survive it.
            stdout: Instead of the process's own.
            stderr: Instead of the process's own.
            environ: Instead of the process's own; ``NO_COLOR``, ``CI`` and ``TERM`` are read.
        """
        self._sanitize = sanitize
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr
        environ = os.environ if environ is None else environ
        self._plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.interactive = _is_terminal(self._stderr) and not environ.get("CI")

    def out(self, text: str = "") -> None:
        """Write text and a line end to standard output; text of others is made safe for a terminal."""
        self.raw(self._sanitize(text) + "\n")

    def raw(self, text: str) -> None:
        """Write text to standard output as it is: machine-readable output, which a terminal may not alter.

        A reader that has gone away (``| head``) ends the process quietly.
        """
        _write(self._stdout, text)

    def note(self, text: str, style: Style | None = None) -> None:
        """Write a line to standard error."""
        _write(self._stderr, self.styled(self._sanitize(text), style, self._stderr) + "\n")

    def fail(self, error: AarError | str, code: ExitCode = ExitCode.INTERNAL) -> NoReturn:
        """Tell in one line what went wrong and leave.

        Args:
            error: An error, whose own exit code is used, or a sentence.
            code: Exit code for a sentence.

        Raises:
            SystemExit: Always.
        """
        self.note(f"aar: {error}", "red")
        raise SystemExit(int(error.exit_code if isinstance(error, AarError) else code))

    def table(
        self,
        rows: Sequence[Sequence[object]],
        header: Sequence[str] = (),
        right: Collection[int] = (),
    ) -> None:
        """Write rows to standard output in aligned columns, cut to the terminal when it is one.

        Args:
            rows: Cells; ``None`` is shown as ``-``.
            header: Names of the columns; not written when there are no rows.
            right: Columns that are aligned to the right, from 0.
        """
        terminal = _is_terminal(self._stdout)
        width = shutil.get_terminal_size().columns if terminal else None
        cells = [[self._cell(value) for value in row] for row in rows]
        lines = table_lines([list(header), *cells] if header and cells else cells, right, width)
        if header and lines:
            lines[0] = self.styled(lines[0], "bold", self._stdout)
        for line in lines:
            self.raw(line + "\n")

    def _cell(self, value: object) -> str:
        return "-" if value is None else " ".join(self._sanitize(str(value)).split())

    def styled(self, text: str, style: Style | None, stream: TextIO) -> str:
        """Return ``text`` in a style, if ``stream`` is a terminal and colours are welcome."""
        if style is None or self._plain or not _is_terminal(stream):
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def table_lines(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), width: int | None = None
) -> list[str]:
    """Return rows as lines with aligned columns, two spaces apart; short rows are filled up.

    Args:
        rows: Cells without line ends.
        right: Columns that are aligned to the right, from 0.
        width: Columns of the terminal; longer lines are cut, ending in ``…``.
    """
    count = max((len(row) for row in rows), default=0)
    full = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(text_width(row[column]) for row in full) for column in range(count)]
    lines: list[str] = []
    for row in full:
        cells = [_pad(cell, widths[column], column in right) for column, cell in enumerate(row)]
        line = "  ".join(cells).rstrip()
        lines.append(line if width is None else cut(line, width))
    return lines


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - text_width(cell))
    return space + cell if right else cell + space


def text_width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: wide characters two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns; ``…`` stands for what was left out."""
    if text_width(text) <= width:
        return text
    taken, used = "", 1
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        taken += character
    return taken.rstrip() + "…" if width > 0 else ""


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # What is still buffered must not raise again when the interpreter closes the stream.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        raise SystemExit(int(ExitCode.OK)) from None


def demand_yes(question: str) -> None:
    """Ask before something is deleted, on standard error.

    Raises:
        click.Abort: The answer is no.
        UsageError: Nobody is there to answer.
    """
    import click

    try:
        click.confirm(f"{question} This cannot be undone", abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError("Nothing is deleted: nobody said yes; --yes deletes without asking.") from None
