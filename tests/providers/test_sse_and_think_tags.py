"""The two smallest parsers: server-sent events and thinking tags."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.providers.http.sse import SseDecoder, SseEvent
from aar.providers.think_tags import TAGS, ThinkSplitter


def read(pieces: Sequence[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    last = decoder.finish()
    return [*events, last] if last else events


def cut(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(min(c, len(body)) for c in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


def test_line_ends_comments_and_names_are_read_as_the_standard_says():
    body = b"\xef\xbb\xbf: hello\r\nevent: x\r\ndata: a\r\ndata:  b\r\n\r\ndata:c\r\rid: 7\n\ndata\n\n"
    assert read([body]) == [SseEvent("a\n b", "x"), SseEvent("c"), SseEvent("")]


def test_a_last_event_without_an_empty_line_is_told_as_unterminated():
    assert read([b"data: one\n\ndata: [DONE]"]) == [SseEvent("one"), SseEvent("[DONE]", terminated=False)]
    assert read([b"data: [DONE]\n"]) == [SseEvent("[DONE]", terminated=False)]


def test_an_error_field_is_an_event_and_plain_text_is_kept():
    assert read([b'error: {"message": "no"}\n\n']) == [SseEvent("", error='{"message": "no"}')]
    decoder = SseDecoder()
    assert decoder.feed(b"upstream connect error\n") == []
    assert decoder.junk == "upstream connect error\n"


@given(
    st.lists(st.sampled_from([b"data: \xc3\xa9", b"\r", b"\n", b"\r\n", b"data:x", b": c", b"\n\n"])),
    st.data(),
)
def test_events_do_not_depend_on_where_the_bytes_are_cut(parts: list[bytes], data: st.DataObject):
    body = b"".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert read(cut(body, cuts)) == read([body])


def split(pieces: Sequence[str]) -> tuple[str, str]:
    splitter = ThinkSplitter()
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()
    return (
        "".join(text for kind, text in parts if kind == "reasoning"),
        "".join(text for kind, text in parts if kind == "text"),
    )


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("<think>hm</think>yes", "hm", "yes"),
        ("\n<think>\nhm\n\n</think>\n\nyes\n", "hm", "yes\n"),
        ("<thinking>a <b> </think> c</thinking>d", "a <b> </think> c", "d"),
        ("<think>\n\n</think>\n\nyes", "", "yes"),
        ("<think>never closed </th", "never closed </th", ""),
        ("I write <think>tags</think>", "", "I write <think>tags</think>"),
        ("<thin ice", "", "<thin ice"),
        ("<thi", "", "<thi"),
        ("  ", "", "  "),
        ("", "", ""),
    ],
)
def test_thinking_is_split_from_text(answer: str, reasoning: str, text: str):
    assert split([answer]) == (reasoning, text)
    assert split(list(answer)) == (reasoning, text)


_WORDS = st.sampled_from(
    ["<", "think", ">", "</", "<think>", "</think>", " ", "\n", "a", "<thinking>", "</thinking>"]
)


@given(st.lists(_WORDS, max_size=12), st.data())
def test_thinking_does_not_depend_on_where_the_text_is_cut(words: list[str], data: st.DataObject):
    answer = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    edges = [0, *cuts, len(answer)]
    pieces = [answer[a:b] for a, b in pairwise(edges)]
    assert split(pieces) == split([answer])
    reasoning, text = split(pieces)
    expected = "".join(answer.split())
    opening = next((f"<{tag}>" for tag in TAGS if expected.startswith(f"<{tag}>")), "")
    if opening and answer.lstrip().startswith(opening):
        expected = expected.removeprefix(opening).replace(f"</{opening[1:]}", "", 1)
    assert "".join(f"{reasoning}{text}".split()) == expected
