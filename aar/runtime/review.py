"""Reviews, questions to several agents, and handing over, in an open conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aar.orchestration.advisors import advice_event, ask_all
from aar.orchestration.consult import Consultation, consult
from aar.orchestration.handoff import SYSTEM, handoff_event, handoff_question, plain_handoff, quoted
from aar.orchestration.review import (
    FINDINGS_SCHEMA,
    Finding,
    Review,
    outcome_event,
    review_event,
    review_of,
    review_prompt,
    reviewer,
)
from aar.protocol.errors import AarError, UsageError
from aar.protocol.events import ContextEvent, Notice, ToolCall, ToolResult
from aar.protocol.ids import new_id
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock
from aar.runtime.counsel import SAID_CHARS, ask_small

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.orchestration.delegate import Member
    from aar.runtime.conversation import Conversation
    from aar.runtime.parts import Runtime


def _place(conversation: Conversation) -> Member:
    agent = conversation.agent
    return conversation.runtime.extras.main_place(conversation.session, lambda: agent)


async def run_review(
    conversation: Conversation, kind: str, subject: str, facts: Sequence[tuple[str, str]], focus: str = ""
) -> Review:
    """Let a reviewer look at a change; the review is stored and the agent sees it as data.

    Args:
        conversation: Where it belongs.
        kind: ``review`` or ``security``.
        subject: What is reviewed, in words.
        facts: Names and texts: the diff, the branch.
        focus: What to look at above all.

    Raises:
        UsageError: The reviewer gave no usable answer.
        AarError: Its model cannot be used.
    """
    session = conversation.session
    profile = replace(reviewer(conversation.runtime.extras.profiles, kind), mode="plan")
    known = await _known(conversation, f"{'security' if kind == 'security' else ''} review {focus}")
    blocks = [ResourceBlock(uri=name, text=text) for name, text in (*facts, *known) if text.strip()]
    content: list[ContentBlock] = [*blocks, TextBlock(text=review_prompt(kind, subject, focus))]
    said = await consult(
        _place(conversation), session, profile, content, title=f"review {subject}", schema=FINDINGS_SCHEMA
    )
    if said.problem:
        raise UsageError(f"There is no review: {said.problem}")
    review = review_of(said.document, kind, subject)
    [stored] = session.append(review_event(review))
    return replace(review, review_id=stored.id)


async def _known(conversation: Conversation, words: str) -> list[tuple[str, str]]:
    """Return the notes that fit, such as a checklist of the project, and tell the user of them."""
    runtime, session = conversation.runtime, conversation.session
    if not runtime.base.may_have_notes:
        return []
    from aar.runtime.notes import SessionNotes

    found: list[tuple[str, str]] = []
    for event in await SessionNotes(runtime, session).recall(words):
        if isinstance(event, ContextEvent):
            texts = (block.text for block in event.content if isinstance(block, TextBlock))
            found += [("note kept earlier", text) for text in texts]
        else:
            session.append(event)
    return found


async def apply_finding(conversation: Conversation, review: Review, finding: Finding) -> ToolResult:
    """Make the replacement of a finding, by the way of every other edit: rules, question, checkpoint.

    Raises:
        UsageError: It is no single replacement.
    """
    if not finding.replaces:
        raise UsageError(f"The fix of finding {finding.number} is no single replacement.")
    session, executor = conversation.session, conversation.agent.executor
    scope = session.scope(new_id(), "review")
    call = ToolCall(
        call_id=f"review-{new_id()}",
        tool_name="edit_file",
        arguments={"path": finding.file, "old_text": finding.old_text, "new_text": finding.new_text},
    )
    stored = [event for event in scope.append(call) if isinstance(event, ToolCall)]
    step = await executor.execute(stored, scope)
    [result] = step.results
    if not result.is_error:
        session.append(outcome_event(review, finding, "applied"))
    return result


async def ask_everyone(conversation: Conversation, names: Sequence[str], question: str) -> list[Consultation]:
    """Ask several agents one question side by side; the agent sees the answers as data.

    Raises:
        ConfigurationError: There is no such agent.
    """
    session, extras = conversation.session, conversation.runtime.extras
    advisors = [extras.profile(name) for name in names]
    said = quoted(session.messages(), SAID_CHARS)
    answers = await ask_all(_place(conversation), session, advisors, question, before_work=False, said=said)
    session.append(*(advice_event(answer) for answer in answers))
    return answers


async def hand_over(conversation: Conversation, name: str, wish: str) -> str:
    """Let another agent go on with the session, with a summary; return the summary.

    The small model writes it; without its answer the facts do.

    Raises:
        ConfigurationError: There is no such agent, or its model cannot be used.
    """
    runtime, session = conversation.runtime, conversation.session
    profile = runtime.extras.profile(name)
    before = runtime.profile.name if runtime.profile is not None else "aar"
    messages = session.messages()
    question = handoff_question(messages, name, profile.description, wish)
    try:
        summary = await ask_small(runtime, session, question, "handoff", system=SYSTEM)
    except AarError as error:
        message = f"No model wrote the handover, so it holds facts only: {error}"
        session.append(Notice(level="warning", code="handoff", message=message))
        summary = ""
    summary = summary.strip() or plain_handoff(messages, session.plan)
    session.append(handoff_event(before, name, summary))
    return summary


async def route_prompt(
    runtime: Runtime, session: Session, prompt: str
) -> tuple[str | None, str | None] | None:
    """Return agent and model that take a prompt, if the router wants others than work now; it is told.

    ``none`` as an agent means aar itself. What goes wrong is told, and nothing changes.
    """
    try:
        choice = await runtime.extras.counsel.route(prompt, session)
    except AarError as error:
        session.append(Notice(level="warning", code="router", message=f"The router did not act: {error}"))
        return None
    if choice is None:
        return None
    now = runtime.profile.name if runtime.profile is not None else "none"
    agent = choice.agent if choice.agent not in (None, now) else None
    model = choice.model if choice.model not in (None, runtime.active.name) else None
    if agent is None and model is None:
        return None
    who = " with ".join(part for part in (agent, model) if part)
    message = f"The router gives this to {who}: {choice.why}. /route off, /agent or /model overrides it."
    session.append(Notice(level="info", code="router", message=message))
    return agent, model
