"""Columns hold in terminals that draw emoji and accents wider or narrower than aar reckons."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from aar.transports.tui.steady import steady

_WIDTH = 60
_ODD = [
    "👍🏽",
    "👨‍👩‍👧‍👦",
    "🇩🇪",
    "❤️",
    "1️⃣",
    "⚠️",
    "é",
    "Z̷̢͖a",
    "क्षि",
    "שָׁ",
    "日本",
    "✅",
    "a",
    "│",
    "\x1b[1;31m",
    "☑",
]
_texts = st.lists(st.sampled_from(_ODD), max_size=12).map("".join)


def _cells(char: str, joins: int) -> int:
    """The width of one character in one of three kinds of terminals."""
    if unicodedata.combining(char) or char in "\u200d\ufe0f\u20e3":
        return 0 if joins < 2 else 1
    if 0x1F3FB <= ord(char) <= 0x1F3FF:
        return (0, 2, 2)[joins]
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _drawn(data: str, joins: int) -> list[str]:
    """Return the cells of a terminal's row that shows ``data``, drawn over a row of dots."""
    row, column = ["."] * _WIDTH, 0
    for move, text in re.findall(r"\x1b\[([\d;]*[A-Za-z])|([^\x1b])", data):
        if move:
            column = int(move[:-1].split(";")[-1]) - 1 if move[-1] in "GH" else column
            continue
        wide = _cells(text, joins)
        for place in range(column, min(_WIDTH, column + wide)):
            row[place] = text
        column += wide
    return row


@pytest.mark.parametrize("joins", [0, 1, 2])
@given(before=_texts, after=_texts)
@settings(max_examples=60)
def test_what_follows_odd_characters_stands_in_its_column_whatever_the_terminal_makes_of_them(
    joins: int, before: str, after: str
) -> None:
    plain = re.sub(r"\x1b\[[\d;]*m", "", before)
    row = _drawn(steady(f"\x1b[3;5H{before}<{after}"), joins)
    place = 4 + cell_len(plain)
    assert row[:4] == ["."] * 4
    assert row[place] == "<"
    assert "." not in row[4:place], "what was there before shows"


@given(_texts)
def test_nothing_but_moves_and_the_blanks_below_are_added(text: str) -> None:
    made = steady(f"\x1b[1;1H{text}")
    assert re.sub(r" +\x1b\[\d+G(.+?)\x1b\[\d+G", r"\1", made, flags=re.S) == f"\x1b[1;1H{text}"


@pytest.mark.parametrize(
    "data", ["plain", "\x1b[1;1Hplain", "日本語 ✓ ┃ …", "👍🏽 where the cursor is not known"]
)
def test_what_needs_no_help_is_left_alone(data: str) -> None:
    assert steady(data) == data
