"""Small commands write plain, aligned and safe text."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.errors import ConfigurationError
from aar.protocol.state import ExitCode
from aar.transports.cli.console import Console, cut, table_lines, text_width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def harmless(text: str) -> str:
    return text.replace("\x1b", "\\x1b")


def make(stream: type[io.StringIO] = io.StringIO, **environ: str) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = stream(), stream()
    return Console(harmless, stdout=out, stderr=err, environ=environ), out, err


def test_text_of_others_is_made_safe_and_machine_output_is_not_altered() -> None:
    console, out, err = make()
    console.out("a\x1b[31m")
    console.note("b\x1b]0;x")
    console.raw('{"a": "\x1b"}\n')
    console.table([["\x1b[2J", None, "two\nlines"]])
    assert out.getvalue() == 'a\\x1b[31m\n{"a": "\x1b"}\n\\x1b[2J  -  two lines\n'
    assert err.getvalue() == "b\\x1b]0;x\n"


@pytest.mark.parametrize(
    ("stream", "environ", "coloured", "interactive"),
    [
        (Terminal, {}, True, True),
        (Terminal, {"NO_COLOR": "1"}, False, True),
        (Terminal, {"NO_COLOR": ""}, True, True),
        (Terminal, {"TERM": "dumb"}, False, True),
        (Terminal, {"CI": "true"}, True, False),
        (io.StringIO, {}, False, False),
    ],
)
def test_colour_and_progress_are_for_people(
    stream: type[io.StringIO], environ: dict[str, str], coloured: bool, interactive: bool
) -> None:
    console, _out, err = make(stream, **environ)
    console.note("x", "red")
    assert (err.getvalue() == "\x1b[31mx\x1b[0m\n") is coloured
    assert console.interactive is interactive


def test_a_failure_is_one_line_and_its_exit_code() -> None:
    console, out, err = make()
    with pytest.raises(SystemExit) as caught:
        console.fail(ConfigurationError("This is wrong; do that."))
    assert caught.value.code == 3
    with pytest.raises(SystemExit) as caught:
        console.fail("No such session.", ExitCode.USAGE)
    assert caught.value.code == 2
    assert err.getvalue() == "aar: This is wrong; do that.\naar: No such session.\n"
    assert out.getvalue() == ""


def test_columns_are_aligned_also_with_wide_and_combining_characters() -> None:
    assert table_lines([["name", "n"], ["日本", "1"], ["e\u0301", "22"], ["x"]], right={1}) == [
        "name   n",
        "日本   1",
        "e\u0301     22",
        "x",
    ]
    assert table_lines([]) == []


def test_a_header_is_written_only_above_rows() -> None:
    console, out, _err = make()
    console.table([], header=["a", "b"])
    assert out.getvalue() == ""
    console.table([["1", "2"]], header=["long", "b"])
    assert out.getvalue() == "long  b\n1     2\n"


@given(st.text(), st.integers(0, 20))
def test_a_cut_text_fits_and_a_short_one_is_not_changed(text: str, width: int) -> None:
    assert text_width(cut(text, width)) <= width
    if text_width(text) <= width:
        assert cut(text, width) == text


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["C", "Z"])), max_size=4), max_size=5))
def test_every_cell_begins_in_the_column_of_its_header(rows: list[list[str]]) -> None:
    full = [[cell or "x" for cell in [*row, *["x"] * (4 - len(row))]] for row in rows]
    for line, row in zip(table_lines(full), full, strict=True):
        assert line.split() == row
    ends = {text_width(line) for line in table_lines([[row[0], "|"] for row in full])}
    assert len(ends) <= 1


def test_a_reader_that_went_away_ends_the_process_quietly() -> None:
    program = (
        "from aar.transports.cli.console import Console\n"
        "console = Console(str)\n"
        "while True: console.out('x' * 1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_terminal_without_unicode_gets_question_marks() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Console(str, stdout=out, stderr=out, environ={}).out("é…")
    assert raw.getvalue() == b"??\n"
