"""Asking another agent something beside a run: its events, its cost and its end are those of any child."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aar.core.agent import RunResult
from aar.core.output_schema import OutputSchema, run_in_limits
from aar.orchestration.delegate import Child, Member
from aar.orchestration.profiles import Profile
from aar.protocol.ids import new_id
from aar.protocol.messages import ContentBlock
from aar.protocol.ports import Emit
from aar.protocol.state import StopReason

_WELL = frozenset({StopReason.END_TURN, StopReason.VERIFIED})


@dataclass(frozen=True, slots=True)
class Consultation:
    """What came of asking an agent.

    Attributes:
        agent_id: Its id in the session.
        result: How its run ended.
        document: Its answer as JSON, where one was asked for and it is valid.
        problem: Why there is no answer, in a sentence; empty: there is one.
    """

    agent_id: str
    result: RunResult
    document: Any = None
    problem: str = ""


async def consult(
    place: Member,
    emit: Emit,
    profile: Profile,
    content: Sequence[ContentBlock],
    *,
    title: str,
    schema: Mapping[str, Any] | None = None,
) -> Consultation:
    """Let an agent answer, in a conversation of its own.

    Args:
        place: Of the agent that asks; what is used counts for its run, if one is under way.
        emit: Into the session.
        profile: Who is asked.
        content: The question.
        title: What it is about, in a few words.
        schema: What the answer must be; ``None``: words.

    Raises:
        AarError: The agent's model cannot be used, or it was stopped before its turn came.
        asyncio.CancelledError: It was called off; the end of the agent is recorded.
    """
    parent = place.parent()
    if not parent.running:
        # The limits of its last run do not bind what is asked after that.
        parent.limits = None
    # Who is only asked asks nobody else: advisors of advisors would have no end.
    profile = replace(profile, advisors=(), critic=None)
    child = place.hire(profile, f"{profile.name}-{new_id()[-6:].lower()}", title)
    emit.append(child.event("start"))
    problems: list[str] = []

    async def work() -> RunResult:
        if schema is None:
            return await child.agent.run(content, place.team.session)
        result, wrong = await run_in_limits(child.agent, place.team.session, content, OutputSchema(schema))
        problems.extend(wrong)
        return result

    result = await place.attend(child, emit, work)
    return _consultation(child, result, problems, schema)


def _consultation(
    child: Child, result: RunResult, problems: list[str], schema: Mapping[str, Any] | None
) -> Consultation:
    if result.stop_reason not in _WELL:
        told = (result.error or {}).get("message") or f"it ended with {result.stop_reason}"
        return Consultation(child.agent_id, result, problem=f"{child.profile.name} gave no answer: {told}")
    if problems:
        return Consultation(
            child.agent_id, result, problem=f"{child.profile.name} gave no usable answer: {problems[0]}"
        )
    if schema is None:
        empty = "" if result.text.strip() else f"{child.profile.name} said nothing."
        return Consultation(child.agent_id, result, problem=empty)
    return Consultation(child.agent_id, result, document=json.loads(result.text))
