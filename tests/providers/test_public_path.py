"""Real traffic through the command line: what `aar run` prints is what the recording says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import RETRYABLE_KINDS
from tests.cli.support import Ran, aar, of_type
from tests.providers.replay import ENDINGS, MODELS, replay, requests_in, settings_of
from tests.providers.test_recordings import KINDS, cases

_SEED = 20


def _sampled(size: int, wanted: Callable[[dict[str, Any]], bool] = lambda case: True) -> list[Any]:
    """Return all cases; those outside of a sample of different kinds are for ``-m slow``."""
    found = cases(wanted)
    if len(found) <= 1:
        return found
    groups: dict[tuple[str, bool], list[int]] = {}
    for place, item in enumerate(found):
        case = item.values[1]
        groups.setdefault((case["provider"], case["complete"]), []).append(place)
    chance = random.Random(_SEED)
    candidates = sorted(chance.choice(places) for places in groups.values())
    taken = set(chance.sample(candidates, min(size, len(candidates))))
    return [
        item if place in taken else pytest.param(*item.values, id=item.id, marks=pytest.mark.slow)
        for place, item in enumerate(found)
    ]


def run(case: dict[str, Any], project: Path, log: Path, *flags: str) -> Ran:
    # What is asked after a tool call gets a plain answer; a failed request gets the same failure again.
    names = [case["id"], ENDINGS[case["provider"]]] if case["complete"] else [case["id"]]
    with replay(*names, log=log) as address:
        return aar(
            *("run", "--model", MODELS[case["provider"]], "--base-url", address, "--output", "stream-json"),
            *(*settings_of(case), *flags, "hello"),
            cwd=project,
        )


def check_failure(ran: Ran, case: dict[str, Any]) -> None:
    told = case["expect"]["error"]
    assert ran.code == 4, ran.err
    errors = of_type(ran.lines, "error")
    assert [error["kind"] in KINDS[told["category"]] for error in errors] == [True], errors
    assert (errors[0]["kind"] in RETRYABLE_KINDS) == told["retryable"]
    assert "\n" not in errors[0]["message"]
    assert of_type(ran.lines, "tool_call") == []
    assert of_type(ran.lines, "tool_result") == []
    assert ran.lines[-1]["stop_reason"] == "error"


def check_answer(ran: Ran, case: dict[str, Any]) -> None:
    expect = case["expect"]
    # Requests that come later have another step; a stored event of the case is in the first.
    first = [event for event in ran.lines if event.get("step") == 1 and event.get("seq") is not None]
    text = "".join(event["content"] for event in of_type(first, "assistant_message"))
    thought = "".join(event["content"] for event in of_type(first, "reasoning"))
    readings = [(expect["text"] + (expect.get("refusal") or ""), expect["reasoning"])]
    if "think_split" in expect:
        split = expect["think_split"]
        readings.append((split["text"], split["reasoning"]))
    assert (text.strip(), thought.strip()) in [(said.strip(), why.strip()) for said, why in readings]
    shown = [event for event in ran.lines if event["type"] == "stream_chunk" and event.get("step") == 1]
    assert "".join(event["text"] for event in shown).strip() == text.strip()
    calls = of_type(first, "tool_call")
    whole = [call for call in calls if call.get("raw_arguments") is None]
    assert [(call["tool_name"], call["arguments"]) for call in whole] == [
        (call["name"], call["arguments"]) for call in expect["tool_calls"]
    ]
    broken = {call["call_id"] for call in calls} - {call["call_id"] for call in whole}
    for result in of_type(first, "tool_result"):
        assert result["call_id"] not in broken or result["is_error"]
    assert len({call["call_id"] for call in calls}) == len(calls)
    (meta,) = of_type(first, "provider_meta")
    assert (meta["stop_reason_raw"] or "") == (expect["stop_reason_raw"] or "")
    check_usage(meta["usage"], expect["usage"])


def check_usage(usage: dict[str, Any], told: dict[str, Any] | None) -> None:
    assert usage["estimated"] is (told is None)
    if told is None:
        return
    read, write = told["cache_read"] or 0, told["cache_write"] or 0
    assert usage["input"] + usage["cache_read"] + usage["cache_write"] == told["total_input"]
    assert usage["output"] == told["total_output"]
    assert (usage["cache_read"], usage["cache_write"]) == (read, write)
    assert usage["reasoning"] == (told["reasoning"] or 0)


def opaque(expect: dict[str, Any]) -> list[str]:
    """Return what must go back to the server unchanged."""
    found = [block.get("signature") or block.get("data") for block in expect.get("blocks", ())]
    found += [item["signature"] for item in expect.get("thought_signatures", ())]
    found += [item["encrypted_content"] for item in expect.get("encrypted_reasoning", ())]
    return [text for text in [*found, *expect.get("reasoning_signatures", ())] if text]


def check_opaque(ran: Ran, case: dict[str, Any], log: Path) -> None:
    kept = json.dumps(of_type(ran.lines, "reasoning"))
    sent = [json.dumps(request["body"]) for request in requests_in(log)[1:]]
    for text in opaque(case["expect"]):
        # Sealed data are JSON within JSON.
        assert json.dumps(text)[1:-1] in kept.replace("\\\\", "\\")
        for body in sent:
            assert json.dumps(text)[1:-1] in body


@pytest.mark.parametrize(("folder", "case"), _sampled(12))
def test_a_recording_comes_out_of_a_run_as_it_is(folder: Path, case: dict[str, Any], tmp_path: Path):
    log = tmp_path / "requests.jsonl"
    project = tmp_path / "project"
    project.mkdir()
    if not case["complete"]:
        ran = run(case, project, log, "--set", "model.retries=1")
        check_failure(ran, case)
        assert len(requests_in(log)) == 1
        return
    ran = run(case, project, log)
    check_answer(ran, case)
    check_opaque(ran, case, log)
    first = requests_in(log)[0]
    assert first["case"] == folder.name
    assert first["body"] is not None


def is_stream_with_calls(case: dict[str, Any]) -> bool:
    return case["stream"] and case["complete"] and bool(case["expect"]["tool_calls"])


@pytest.mark.parametrize(("folder", "case"), _sampled(2, is_stream_with_calls))
def test_a_recorded_stream_that_breaks_off_runs_no_tool(folder: Path, case: dict[str, Any], tmp_path: Path):
    body = (folder / "body.txt").read_bytes()
    with replay(case["id"], options=("--cut-after", str(len(body) * 6 // 10))) as address:
        ran = aar(
            *("run", "--model", MODELS[case["provider"]], "--base-url", address, "--output", "stream-json"),
            *(*settings_of(case), "--set", "model.retries=1", "hello"),
            cwd=tmp_path,
        )
    assert ran.code == 4
    assert [error["kind"] for error in of_type(ran.lines, "error")] == ["incomplete_stream"]
    assert of_type(ran.lines, "tool_call") == of_type(ran.lines, "tool_result") == []
