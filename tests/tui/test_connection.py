"""Which stored events a screen shows after the conversation went back and forth."""

from __future__ import annotations

from typing import Literal

from aar.protocol.events import AssistantMessage, Event, Rewind, UserMessage
from aar.protocol.messages import TextBlock
from aar.transports.tui.connection import as_it_is


def said(seq: int) -> Event:
    if seq % 2:
        return UserMessage(content=(TextBlock(text=f"prompt {seq}"),), seq=seq)
    return AssistantMessage(content=f"answer {seq}", seq=seq)


def back(to_seq: int, seq: int, scope: Literal["conversation", "files", "both"] = "both") -> Rewind:
    return Rewind(to_seq=to_seq, seq=seq, scope=scope)


def shown(*events: Event) -> list[int | None]:
    return [event.seq for event in as_it_is(events)[0]]


TALK = [said(seq) for seq in range(1, 7)]


def test_a_conversation_that_never_went_back_is_shown_whole() -> None:
    assert as_it_is(TALK) == (TALK, 1)
    assert as_it_is([]) == ([], 1)


def test_what_lies_after_the_place_it_went_back_to_is_hidden() -> None:
    assert shown(*TALK, back(4, 7), said(9), said(10)) == [1, 2, 3, 4, 7, 9, 10]


def test_files_that_went_back_hide_nothing() -> None:
    assert shown(*TALK, back(2, 7, "files")) == [1, 2, 3, 4, 5, 6, 7]


def test_redo_shows_the_conversation_as_it_was() -> None:
    assert shown(*TALK, back(4, 7), back(6, 8)) == [1, 2, 3, 4, 5, 6]


def test_two_undos_and_their_redos_step_back_and_forth() -> None:
    once, twice, again, whole = back(4, 7), back(2, 8), back(7, 9), back(6, 10)
    assert shown(*TALK, once, twice) == [1, 2, 8]
    assert shown(*TALK, once, twice, again) == [1, 2, 3, 4, 7]
    assert shown(*TALK, once, twice, again, whole) == [1, 2, 3, 4, 5, 6]


def test_older_events_begin_where_a_rewind_led_to_before_the_tail() -> None:
    tail = [*TALK[4:], back(2, 7), said(9)]
    events, oldest = as_it_is(tail)
    assert [event.seq for event in events] == [7, 9]
    assert oldest == 3
