"""`/why` tells the truth about the last decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aar.commands.base import Failure, Text
from aar.commands.explain import KINDS, explain_last
from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    Compaction,
    ErrorEvent,
    Event,
    ModelSwitch,
    Notice,
    Retry,
    StateEvent,
    ToolCall,
    ToolResult,
)
from tests.commands.support import WRITE, desk

CALL = ToolCall(call_id="c", tool_name="bash", arguments={"command": "make deploy"})


def why(*events: Event, kind: str = "") -> str:
    """Return what is told of ``events``."""
    return explain_last(events, (kind,) if kind else KINDS) or ""


def test_a_refusal_by_rule_names_rule_call_and_what_the_model_heard() -> None:
    told = why(
        CALL,
        Approval(call_id="c", decision="reject", by="policy", rule="bash(make *)"),
        ToolResult(call_id="c", tool_name="bash", output="Error [blocked]: no make.", is_error=True),
    )
    assert "`$ make deploy` **was refused** by the rules and protections" in told
    assert "`bash(make *)`" in told
    assert "no make" in told


def test_an_answered_question_tells_who_asked_and_what_was_said() -> None:
    asked: dict[str, Any] = {
        "rule": {"text": "bash(make *)", "layer": "user"},
        "reasons": ["it leaves the wall"],
    }
    request = ApprovalRequest(
        request_id="r", call_id="c", tool_name="bash", arguments=CALL.arguments, why=asked, wall="landlock"
    )
    open_ = why(CALL, request)
    assert "A question is open" in open_
    told = why(
        CALL,
        request,
        Approval(request_id="r", call_id="c", decision="reject", by="user", feedback="use staging"),
    )
    for words in ("by you", "it leaves the wall", "`bash(make *)` (user) asks", "landlock", "use staging"):
        assert words in told


def test_retries_fallbacks_compactions_walls_and_ends() -> None:
    retry = Retry(attempt=2, delay_s=1.5, error_kind="overloaded", message="Busy.", discard=True)
    assert "Attempt 2 failed (overloaded): Busy." in why(retry)
    assert "after 1.5 s" in why(retry)
    switch = ModelSwitch(from_model="a/x", to_model="b/y", reason="a/x is down.")
    assert "**b/y** took over from a/x: a/x is down." in why(retry, switch)
    assert "Busy" in why(retry, switch, kind="retry")
    compaction = Compaction(summary="Goal: parse.", first_kept_seq=9, tokens_before=9000, tokens_after=900)
    assert "9,000 tokens became 900" in why(compaction)
    ran = ToolResult(call_id="c", tool_name="bash", output="", sandbox="landlock")
    assert "inside the wall **landlock**" in why(CALL, ran)
    assert "without a wall" in why(CALL, ran.model_copy(update={"sandbox": "none"}))
    assert "About the wall" in why(Notice(level="warning", message="The sandbox went away."))
    failed = ErrorEvent(kind="auth", message="The key is wrong.", run_id="1")
    end = StateEvent(state="error", stop_reason="error", run_id="1")
    assert "The key is wrong." in why(failed, end)
    assert "max_steps" in why(StateEvent(state="max_steps", stop_reason="max_steps"))


def test_nothing_is_invented_where_nothing_was_decided() -> None:
    assert why() == ""
    assert why(CALL, StateEvent(state="completed", stop_reason="end_turn")) == ""


async def test_the_reasons_of_a_real_run_are_told(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "done"}) as at:
        nothing = await at.run("/why")
        assert nothing == Text("Nothing was decided yet.")
        await at.say("write b")
        told = await at.run("/why permission")
        assert isinstance(told, Text)
        assert "`Write b.txt` **was allowed** by you" in told.markdown
        assert "It was asked because" in told.markdown
        assert isinstance(await at.run("/why weather"), Failure)
        await at.run("/mode plan")
        mode = await at.run("/why mode")
        assert isinstance(mode, Text)
        assert "from ask to **plan** by user" in mode.markdown
