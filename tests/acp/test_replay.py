"""What an editor is told again of a stored session."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.events import AssistantMessage, Event, Rewind
from aar.transports.acp.translate import still_told
from tests.session.sequences import chaos
from tests.session.support import new_session, user


def one_by_one(events: list[Event]) -> list[Event]:
    """The same, in the order in which it happened and with all of it in memory."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Rewind) and event.scope != "files" and event.agent_id == "main":
            kept = [other for other in kept if other.seq <= event.to_seq]
        else:
            kept.append(event)
    return kept


@settings(max_examples=100, deadline=None)
@given(chaos(), st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["both", "files"])), max_size=3))
def test_what_was_rewound_is_not_told_again(events: list[Event], more: list[tuple[int, str]]) -> None:
    for to_seq, scope in more:
        events.append(Rewind(to_seq=to_seq, scope=scope, seq=len(events) + 1))
    rewinds = [event for event in events if isinstance(event, Rewind)]
    assert list(still_told(iter(events), rewinds)) == one_by_one(events)


def test_a_session_knows_its_rewinds_without_building_its_events(tmp_path: Path) -> None:
    _, session = new_session(tmp_path)
    session.append(user("one"), AssistantMessage(content="two", run_id="R", step=1))
    session.append(Rewind(to_seq=2, scope="conversation"), user("three"), Rewind(to_seq=1, scope="files"))
    assert [(event.seq, event.to_seq) for event in session.rewinds()] == [(4, 2), (6, 1)]
    session.close()
