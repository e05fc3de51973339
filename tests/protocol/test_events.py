from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from aar.protocol import events as ev
from aar.protocol.ids import new_id, now
from tests.protocol.samples import SAMPLES

TYPES_OF_DESIGN = """session prompt setting user_message context reasoning assistant_message tool_call
provider_meta approval_request approval checkpoint tool_result retry model_switch compaction rewind plan
subagent state notice error stream_chunk tool_progress""".split()
ENVELOPE = ("type id seq ts session_id run_id step trace_id agent_id parent_id").split()


def test_every_type_of_the_design_exists_and_has_a_sample() -> None:
    assert sorted(ev.EVENT_TYPES) == sorted(TYPES_OF_DESIGN)
    assert sorted(sample.type for sample in SAMPLES) == sorted(TYPES_OF_DESIGN)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.type)
def test_json_round_trip_is_exact(event: ev.Event) -> None:
    stamped = event.model_copy(
        update={"id": new_id(), "seq": 7, "ts": now(), "session_id": "s", "run_id": "r", "step": 2}
    )
    line = stamped.to_json()
    again = ev.parse_event(line)
    assert again == stamped
    assert type(again) is type(event)
    assert again.to_json() == line
    assert "\n" not in line


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.type)
def test_json_has_the_whole_envelope_first(event: ev.Event) -> None:
    assert list(json.loads(event.to_json()))[: len(ENVELOPE)] == ENVELOPE


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.type)
def test_events_are_frozen(event: ev.Event) -> None:
    with pytest.raises(ValidationError):
        event.seq = 3  # type: ignore[misc]


def test_the_union_is_discriminated_on_type() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ev.KnownEvent)
    for sample in SAMPLES:
        assert adapter.validate_json(sample.to_json()) == sample
    with pytest.raises(ValidationError):
        adapter.validate_json('{"type": "nothing"}')


def test_a_setting_says_from_and_to_on_the_wire() -> None:
    data = json.loads(ev.Setting(key="mode", from_="ask", to="auto").to_json())
    assert (data["from"], data["to"]) == ("ask", "auto")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(min_size=1, max_size=12), st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_unknown_types_and_fields_are_kept(name: str, fields: dict[str, Any]) -> None:
    data = {
        **{key: value for key, value in fields.items() if key not in ENVELOPE},
        "type": f"new_{name}",
        "seq": 1,
    }
    data = json.loads(json.dumps(data).encode("utf-8", "replace"))
    event = ev.event_from_dict(data)
    assert isinstance(event, ev.UnknownEvent)
    kept = json.loads(event.to_json())
    assert {key: kept[key] for key in data} == data


def test_unknown_fields_of_a_known_type_are_kept() -> None:
    line = '{"type": "notice", "message": "m", "colour": {"deep": [1]}}'
    assert json.loads(ev.parse_event(line).to_json())["colour"] == {"deep": [1]}


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=30))
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    call = ev.ToolCall(call_id="1", tool_name="x", arguments={text: [text]})
    message = ev.AssistantMessage(content=text)
    for event in (call, message):
        event.to_json().encode()
        assert ev.parse_event(event.to_json()) == event


@pytest.mark.parametrize(
    "line", ["", "[]", "{", "3", '{"type": "notice"}', '{"type": "notice", "message": 3}']
)
def test_what_is_no_event_raises_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        ev.parse_event(line)


def test_only_stream_events_are_not_stored() -> None:
    assert {name for name, model in ev.EVENT_TYPES.items() if not model.stored} == {
        "stream_chunk",
        "tool_progress",
    }
