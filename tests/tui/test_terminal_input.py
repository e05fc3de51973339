"""What a terminal sends: pastes, whatever is in them and however they are cut, and keys with Alt."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser
from textual.events import Event, Key, Paste

from aar.transports.tui.pasting import BEGIN, END, Pasted, PasteReader
from aar.transports.tui.textual_driver import TerminalDriver
from aar.transports.tui.textual_private import no_letter

HOSTILE = "one\rtwo\x1b[31m red\x07 \x1b\r \x1by\x1b[200~ and so on, more than a sequence is long\r\n"


def _pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({place % (len(text) + 1) for place in cuts} | {0, len(text)})
    return [text[first:last] for first, last in itertools.pairwise(places)]


@given(
    st.lists(st.tuples(st.text("ab\x1b[~20", max_size=9), st.text("ab\x1b[~201\r", max_size=30)), max_size=4),
    st.lists(st.integers(0, 200)),
)
def test_pastes_are_found_however_they_are_cut(told: list[tuple[str, str]], cuts: list[int]) -> None:
    parts = [
        (typed, paste) for typed, paste in told if BEGIN not in typed + "x" and END not in paste + END[:-1]
    ]
    parts = [(f"{typed}.", paste) for typed, paste in parts]
    sent = "".join(f"{typed}{BEGIN}{paste}{END}" for typed, paste in parts)
    reader = PasteReader()
    found = [one for piece in _pieces(sent, cuts) for one in reader.feed(piece)]
    assert [one.text for one in found if isinstance(one, Pasted)] == [paste for _, paste in parts]
    assert "".join(one for one in found if isinstance(one, str)) == "".join(
        f"{typed}{BEGIN}" for typed, _ in parts
    )
    assert "" not in found


def test_nothing_in_a_paste_is_a_key_and_what_is_typed_behind_it_is() -> None:
    heard: list[Event] = []
    driver = TerminalDriver.__new__(TerminalDriver)
    driver.process_message = heard.append  # type: ignore[method-assign,assignment]
    parser, reader = XTermParser(), PasteReader()
    for piece in _pieces(f"a{BEGIN}{HOSTILE}{END}\r", [3, 4, 30, 50, 110]):
        for part in reader.feed(piece):
            driver._hand_on(parser, part)
    assert [
        one.text if isinstance(one, Paste) else one.key for one in heard if isinstance(one, Paste | Key)
    ] == [
        "a",
        HOSTILE,
        "enter",
    ]


def test_a_letter_with_alt_is_a_key_and_writes_nothing() -> None:
    parser = XTermParser()
    heard = [no_letter(one) for one in (*parser.feed("\x1bqq"), *parser.feed(""))]
    assert [(one.key, one.character) for one in heard if isinstance(one, Key)] == [
        ("alt+q", None),
        ("q", "q"),
    ]
