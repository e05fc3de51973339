"""No untrusted text steers a terminal."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aar.safety.sanitize import sanitize, sanitize_prose, strip_ansi

_ANY = st.text(alphabet=st.one_of(st.characters(), st.characters(categories=["Cc", "Cf", "Cs"])))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 日本 👩\n\tx", "plain ünïcode 日本 👩\n\tx"),
        ("\x1b[31mred", "␛[31mred"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=\\x07"),
        ("\x1b]8;;http://x\x1b\\a", "␛]8;;http://x␛\\a"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb", "a\\rb"),
        ("a\r\nb", "a\nb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("\x00\x7f\x08", "\\x00\\x7f\\x08"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def test_newlines_are_shown_where_one_line_is_wanted() -> None:
    assert sanitize("a\nb", keep_newlines=False) == "a\\nb"


_JOINED = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🏴‍☠️", "❤️‍🔥", "👁️‍🗨️", "🧑🏽‍🤝‍🧑🏿", "🤷🏽‍♀️", "👩‍⚕️", "🐻‍❄️", "🙂‍↔️", "⛓️‍💥", "🚶‍➡️"]
_CHAINS = st.text(alphabet="👩👧👦❤️🔥\u200d🏽ab\u202e 日\n\U000e0041", max_size=30)


@pytest.mark.parametrize("emoji", _JOINED)
def test_emoji_made_of_several_are_one_sign_in_prose_and_escapes_where_something_is_run(emoji: str) -> None:
    assert sanitize_prose(f"a{emoji}b\u200d") == f"a{emoji}b\\u200d"
    assert "\u200d" not in sanitize(emoji)
    assert cell_len(emoji) == 2


@given(st.one_of(_ANY, _CHAINS))
def test_a_joiner_stays_only_between_emoji_and_never_many_in_a_row(text: str) -> None:
    shown = sanitize_prose(text)
    assert shown.replace("\u200d", "\\u200d") == sanitize(text)
    for cluster in re.findall(r".[\ufe0f🏽]*(?:\u200d.[\ufe0f🏽]*)+", shown):
        signs = [part.strip("\ufe0f🏽") for part in cluster.split("\u200d")]
        assert 2 <= len(signs) <= 4
        assert all(unicodedata.category(sign) in {"So", "Sk", "Sm"} for sign in signs if sign)
    assert sanitize_prose(shown) == shown


@given(_ANY, st.booleans())
def test_nothing_that_steers_is_left_and_a_second_pass_changes_nothing(text: str, keep: bool) -> None:
    shown = sanitize(text, keep_newlines=keep)
    assert not any(
        unicodedata.category(char) in {"Cc", "Cs"} and char != "\t" and not (keep and char == "\n")
        for char in shown
    )
    assert not set(shown) & set(
        "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u061c\ufeff"
    )
    assert sanitize(shown, keep_newlines=keep) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bx\x1b=y\x1bM", "xy"),
        ("\x9b2Kx", "x"),
        ("a\nb", "a\nb"),
        ("cut\x1b[", "cut"),
    ],
)
def test_strip_ansi_leaves_the_text(text: str, left: str) -> None:
    assert strip_ansi(text) == left


@given(st.text(alphabet="\x1b[]0;1m\x07\\ab\n"))
def test_no_escape_survives_stripping(text: str) -> None:
    assert "\x1b" not in strip_ansi(text)
