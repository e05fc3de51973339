"""Attempts at a task in work trees of git, each with an agent, a wall and a session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aar.core.verify.verifier import Verifier
from aar.orchestration.alternatives import (
    JUDGE,
    JUDGEMENT_SCHEMA,
    Attempt,
    Comparison,
    attempt_prompt,
    comparison_event,
    judge_text,
    ranked,
)
from aar.orchestration.consult import consult
from aar.orchestration.merge_back import problem_of, put_in
from aar.orchestration.work_places import Changes, Place, Places
from aar.protocol.errors import AarError
from aar.protocol.events import Subagent, ToolResult
from aar.protocol.ids import new_id
from aar.protocol.messages import ResourceBlock, TextBlock
from aar.protocol.state import StopReason
from aar.runtime.small import store_cost
from aar.runtime.work_trees import places_of, runtime_in

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.runtime.conversation import Conversation

PARALLEL = 3
"""Attempts at one time."""


async def try_alternatives(
    conversation: Conversation, task: str, count: int, checks: Sequence[str]
) -> Comparison:
    """Let ``count`` agents do the same task, each in a copy of the project as it is now, and compare.

    Args:
        conversation: Where it belongs; events, costs and the comparison are stored there.
        task: What is to be done.
        count: How many attempts.
        checks: Commands that tell whether an attempt is right.

    Raises:
        UsageError: No wall holds, or the project is in no git repository, or too much is not committed.
        StorageError: There is no room for copies.
    """
    runtime = conversation.runtime
    turns = asyncio.Semaphore(PARALLEL)

    async def attempt(places: Places, number: int) -> Attempt:
        async with turns:
            return await _attempt(conversation, places, task, number, count, checks)

    async with places_of(runtime, "alternatives") as places:
        attempts = await asyncio.gather(*(attempt(places, number) for number in range(1, count + 1)))
    judgement, why = await _judged(conversation, task, [item for item in attempts if item.usable])
    comparison = Comparison(task, ranked(attempts, judgement), why)
    conversation.session.append(comparison_event(comparison))
    return comparison


async def _judged(
    conversation: Conversation, task: str, attempts: Sequence[Attempt]
) -> tuple[dict[str, object] | None, str]:
    """Return what a judge says; without one, checks and size decide."""
    plain = "No judge compared them: the order is by checks and size."
    if len(attempts) < 2:
        return None, "" if attempts else "None came to anything."
    agent = conversation.agent
    place = conversation.runtime.extras.main_place(conversation.session, lambda: agent)
    content = [ResourceBlock(uri=name, text=text) for name, text in judge_text(task, attempts)]
    words = TextBlock(text="Rank these attempts.")
    try:
        said = await consult(
            place,
            conversation.session,
            JUDGE,
            [*content, words],
            title="compare attempts",
            schema=JUDGEMENT_SCHEMA,
        )
    except AarError as error:
        return None, f"{plain} {error}"
    if said.problem:
        return None, f"{plain} {said.problem}"
    return said.document, str(said.document.get("why", ""))


async def _attempt(
    conversation: Conversation, places: Places, task: str, number: int, count: int, checks: Sequence[str]
) -> Attempt:
    session = conversation.session
    agent_id = f"alternative-{number}-{new_id()[-4:].lower()}"
    shown = {"profile": "alternative", "task": f"attempt {number}: {task[:150]}", "agent_id": agent_id}
    session.append(Subagent.model_validate({"action": "start", **shown}))
    reason, attempt = StopReason.CANCELLED, Attempt(number, problem="called off")
    try:
        place = await places.make(str(number), "")
        try:
            attempt, reason = await _work(conversation, places, place, task, number, count, checks, agent_id)
        finally:
            await places.remove(place)
    except AarError as error:
        reason, attempt = StopReason.ERROR, Attempt(number, problem=str(error))
    finally:
        end = {"action": "end", "result": attempt.answer or attempt.problem, "stop_reason": reason}
        session.append(Subagent.model_validate({**shown, **end}))
    return attempt


async def _work(
    conversation: Conversation,
    places: Places,
    place: Place,
    task: str,
    number: int,
    count: int,
    checks: Sequence[str],
    agent_id: str,
) -> tuple[Attempt, StopReason]:
    """Do the task in ``place`` and tell what changed there."""
    async with runtime_in(conversation.runtime, place.folder) as inner:
        session = inner.open_session(title=f"Attempt {number} of {count}: {task[:60]}")
        try:
            agent = inner.agent(session)
            agent.budget = conversation.agent.budget
            result = await agent.run(attempt_prompt(task, number, count), session)
        finally:
            await session.aclose()
        store_cost(conversation.session, conversation.runtime.active, result.usage, result.cost_usd, agent_id)
        changes = await places.changes(place)
        attempt = Attempt(
            number,
            answer=result.text,
            diff=changes.text,
            files=changes.files,
            cost_usd=result.cost_usd,
            session_id=session.session_id,
            problem=_problem(result, changes),
        )
        if checks and attempt.usable:
            verifier = Verifier(checks, inner.spawner, place.folder, inner.config.verify)
            check = await verifier.run()
            attempt = replace(attempt, passed=check.passed, output="" if check.passed else check.output)
    return attempt, result.stop_reason


def _problem(result: RunResult, changes: Changes) -> str:
    if result.stop_reason is StopReason.ERROR:
        return str((result.error or {}).get("message") or "it failed")
    problem = problem_of(changes)
    return f"its changes cannot be picked: {problem}" if problem else ""


async def pick(conversation: Conversation, attempt: Attempt) -> ToolResult:
    """Make the changes of an attempt in the project, by the way of every other edit."""
    session = conversation.session
    scope = session.scope(new_id(), "alternatives")
    return (await put_in(conversation.agent.executor, scope, attempt.diff)).results[0]
