"""Advisors: agents that are asked side by side before a turn; their advice is data for the one who works."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from aar.config.front_matter import words
from aar.orchestration.consult import Consultation, consult
from aar.orchestration.delegate import Member
from aar.orchestration.profiles import Profile
from aar.protocol.errors import AarError, ConfigurationError
from aar.protocol.events import ContextEvent, Event, Notice
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock
from aar.protocol.ports import Emit

MAX_ADVISORS: Final = 8
SOURCE: Final = "advisor"
_STEPS: Final = 25
_ADVICE_CHARS: Final = 6000
_ADVISE: Final = """\
Another agent is about to work on the task that is quoted. You advise it and do not do the work: what to \
look at, how you would go about it, what goes wrong easily, how to check the result. Look into the project \
where that makes your advice better; change nothing. At most 200 words, the most important first."""
_ANSWER: Final = (
    "Answer the question that is quoted, from your own point of view. Change nothing. At most 300 words."
)


def advisor_names(value: object, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """Return the names of ``[agents] advisors``.

    Raises:
        ConfigurationError: One is no agent, or there are too many.
    """
    names = tuple(dict.fromkeys(words(value)))
    for name in names:
        if name not in profiles:
            near = get_close_matches(name, list(profiles), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(profiles)}."
            raise ConfigurationError(f"There is no agent {name!r} to ask for advice; {hint}")
    if len(names) > MAX_ADVISORS:
        raise ConfigurationError(f"At most {MAX_ADVISORS} advisors are asked; name fewer.")
    return names


async def ask_all(
    place: Member,
    emit: Emit,
    advisors: Sequence[Profile],
    question: str,
    *,
    before_work: bool,
    said: str = "",
) -> list[Consultation]:
    """Ask agents side by side.

    Args:
        place: Of the agent that asks.
        emit: Into the session.
        advisors: Who is asked.
        question: The task, or the question.
        before_work: Whether advice for the agent that works is wanted, or an answer for the user.
        said: The end of the conversation so far.

    Returns:
        Answers in the order of ``advisors``; one that failed has its ``problem``.
    """
    facts: list[ContentBlock] = [ResourceBlock(uri="conversation so far", text=said)] if said else []
    facts.append(ResourceBlock(uri="task" if before_work else "question", text=question))
    content = [*facts, TextBlock(text=_ADVISE if before_work else _ANSWER)]

    async def ask(profile: Profile) -> Consultation | AarError:
        steps = min(profile.max_steps or _STEPS, _STEPS)
        careful = replace(profile, mode="plan", max_steps=steps)
        try:
            return await consult(place, emit, careful, content, title=f"advice: {question}")
        except AarError as error:
            emit.append(
                Notice(level="warning", code=SOURCE, message=f"{profile.name} was not asked: {error}")
            )
            return error

    answers = await asyncio.gather(*(ask(profile) for profile in advisors))
    return [answer for answer in answers if isinstance(answer, Consultation)]


def advice_event(answer: Consultation) -> Event:
    """Return the event that puts an answer before the model as data, or tells that there is none."""
    name = answer.agent_id.rpartition("-")[0]
    if answer.problem:
        return Notice(level="warning", code=SOURCE, message=answer.problem)
    text = answer.result.text.strip()[:_ADVICE_CHARS]
    return ContextEvent(
        source=SOURCE, label=f"Advice of {name}", content=(TextBlock(text=text),), trusted=False
    )
