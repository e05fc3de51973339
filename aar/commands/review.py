"""Reviews with findings that are applied one by one; a critic, advisors, a router, handing over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aar.commands import git_facts
from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Submit,
    Table,
    Text,
    fence,
    money,
    need_idle,
    one_line,
    starting_with,
)
from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.orchestration.review import Finding, Review

_RANGE = re.compile(r"(?P<first>[^\s.~^:-][^\s:]*?)(?P<dots>\.{2,3})(?P<last>[^\s.:-][^\s:]*)?")
_CALLED_OFF = "It was called off."


# --- reviews ---------------------------------------------------------------------------------------------


async def _review(context: Context, argument: str) -> Result:
    return await _reviewed(context, argument, "review")


async def _security(context: Context, argument: str) -> Result:
    return await _reviewed(context, argument, "security")


async def _reviewed(context: Context, argument: str, kind: str) -> Result:
    """Review a change, or do what the first word says with the findings of the last review."""
    verb, _, rest = argument.partition(" ")
    if verb in ("findings", "show", "apply", "dismiss"):
        return await _with_findings(context, verb, rest.strip())
    need_idle(context)
    branch = await git_facts.need_repository(context)
    subject, words, focus = await _subject(context, argument)
    diff = await git_facts.diff(context, *words)
    status = await git_facts.git(context, "status", "--short") or ""
    dirty = status if words == ["HEAD"] else ""
    if not diff.strip() and not dirty.strip():
        return Failure(f"There is nothing to review in {subject}; name a branch, a commit or a range A..B.")
    from aar.runtime.review import run_review

    facts = (("branch", branch), ("git status", dirty), (f"git diff {' '.join(words)}", diff))
    review = await context.conversation.beside(run_review(context.conversation, kind, subject, facts, focus))
    return Failure(_CALLED_OFF) if review is None else _shown(review)


async def _subject(context: Context, argument: str) -> tuple[str, list[str], str]:
    """Return what is reviewed in words, the words for ``git diff``, and what to look at above all."""
    first, _, rest = argument.partition(" ")
    span = _RANGE.fullmatch(first)
    if first == "pr":
        base = await git_facts.base_branch(context)
        if base is None:
            raise UsageError("Against which branch cannot be told here; write /review BRANCH.")
        return f"the changes of this branch since {base}", [f"{base}...HEAD"], rest.strip()
    if span is not None:
        ends = [span["first"], span["last"] or "HEAD"]
        for name in ends:
            if await _commit_of(context, name) is None:
                raise UsageError(f"git knows no {name} here.")
        return f"the changes {first}", [f"{ends[0]}{span['dots']}{ends[1]}"], rest.strip()
    against = await _commit_of(context, first)
    if against is not None:
        return f"the changes since {first}", [f"{against}...HEAD"], rest.strip()
    return "the uncommitted changes", ["HEAD"], argument


async def _commit_of(context: Context, word: str) -> str | None:
    """Return the commit that ``word`` names; ``None``: it is no name of one."""
    if not word or word.startswith("-"):
        return None
    found = await git_facts.git(context, "rev-parse", "--verify", "-q", f"{word}^{{commit}}")
    return found.strip() if found else None


def _shown(review: Review) -> Result:
    from aar.orchestration.review import headline

    title, note = headline(review), review.summary
    if not review.findings:
        return Text(f"**{title}**\n\n{note}")
    items = tuple(
        ChoiceItem(
            f"{item.number} {item.severity} {item.place}",
            f"/review apply {item.number}" if item.outcome == "open" else f"/review show {item.number}",
            one_line(item.title if item.outcome == "open" else f"{item.title} ({item.outcome})", 160),
            current=item.outcome != "open",
        )
        for item in review.findings
    )
    more = "/review show N tells more, apply N mends it, dismiss N puts it aside."
    return Choice(title, items, f"{note}\n{more}".strip())


async def _with_findings(context: Context, verb: str, rest: str) -> Result:
    from aar.orchestration.review import latest_review

    review = await asyncio.to_thread(lambda: latest_review(context.session.events()))
    if review is None:
        return Failure("There is no review in this session; /review makes one.")
    if verb == "findings":
        return _shown(review)
    finding = review.finding(int(rest)) if rest.isdigit() and len(rest) < 6 else None
    if finding is None:
        return Failure(f"Say which: /review {verb} NUMBER, from 1 to {len(review.findings)}.")
    if verb == "show":
        return Text(_whole(finding))
    if finding.outcome != "open":
        return Failure(f"Finding {finding.number} was {finding.outcome} already.")
    if verb == "apply":
        return await _apply(context, review, finding)
    from aar.orchestration.review import outcome_event

    context.session.append(outcome_event(review, finding, "dismissed"))
    return Text(f"Finding {finding.number} is put aside.")


def _whole(finding: Finding) -> str:
    parts = [
        f"**{finding.number}. {finding.severity}** `{finding.place}` {finding.title}",
        finding.why,
        f"Fix: {finding.fix}",
    ]
    if finding.replaces:
        old = "".join(f"-{line}\n" for line in finding.old_text.splitlines())
        new = "".join(f"+{line}\n" for line in finding.new_text.splitlines())
        parts.append(fence(old + new, "diff"))
    return "\n\n".join([*parts, f"*{finding.outcome}*"])


async def _apply(context: Context, review: Review, finding: Finding) -> Result:
    """Make the replacement; where it does not fit as it stands, let the agent mend it."""
    need_idle(context)
    from aar.orchestration.review import apply_prompt, outcome_event
    from aar.runtime.review import apply_finding

    conversation = context.conversation
    why = "its fix is no single replacement"
    if finding.replaces:
        result = await conversation.beside(apply_finding(conversation, review, finding))
        if result is None:
            return Failure(_CALLED_OFF)
        if not result.is_error:
            return Text(f"{result.output}\n\n{fence(result.diff or '', 'diff')}")
        if result.category in ("denied", "blocked", "cancelled"):
            return Failure(result.output)
        why = "the text to replace is not there once as it stands"
    context.session.append(outcome_event(review, finding, "applied"))
    return Submit(apply_prompt(finding), f"The agent mends finding {finding.number}, because {why}.")


def _complete_review(context: Context, text: str) -> Sequence[str]:
    words = ["findings", "show ", "apply ", "dismiss ", "pr", "main", "origin/main", "HEAD~1"]
    return starting_with(words, text) if text else []


# --- beside prompts and answers ---------------------------------------------------------------------------


async def _critic(context: Context, argument: str) -> Result:
    """Show or set the critic."""
    from aar.orchestration.critic import critic_settings

    counsel = context.runtime.extras.counsel
    if argument:
        rounds, _, model = argument.partition(" ")
        if rounds == "off":
            counsel.critic = None
        elif rounds.isdigit() and len(rounds) < 3:
            counsel.critic = critic_settings({"rounds": int(rounds), "model": model.strip() or None})
        else:
            raise UsageError("Write /critic ROUNDS [PROVIDER/MODEL] or /critic off.")
    now = counsel.critic
    if now is None:
        return Text("No critic judges answers. /critic 1 lets one, for this session; it costs tokens.")
    who = now.model or "the model that answers"
    return Text(f"A critic ({who}) judges each answer before it is final, at most {now.rounds} times.")


async def _advisors(context: Context, argument: str) -> Result:
    """Show or set the advisors."""
    from aar.orchestration.advisors import advisor_names

    counsel = context.runtime.extras.counsel
    if argument:
        counsel.advisors = (
            () if argument == "off" else advisor_names(argument, context.runtime.extras.profiles)
        )
    if not counsel.advisors:
        return Text("No advisors are asked. /advisors NAME… asks agents before each turn; it costs tokens.")
    return Text(f"Asked before each turn of this session: {', '.join(counsel.advisors)}.")


async def _ask_all(context: Context, argument: str) -> Result:
    """Ask several agents one question."""
    from aar.orchestration.advisors import advisor_names
    from aar.runtime.review import ask_everyone

    need_idle(context)
    profiles = context.runtime.extras.profiles
    first, _, rest = argument.partition(" ")
    listed = [name for name in first.removesuffix(":").split(",") if name]
    if len(listed) > 1 or (listed and listed[0] in profiles):
        names, question = advisor_names(listed, profiles), rest.strip()
    else:
        names, question = context.runtime.extras.counsel.advisors, argument
    if not names or not question:
        raise UsageError("Write /ask-all NAME,NAME QUESTION; without names [agents] advisors are asked.")
    conversation = context.conversation
    before = context.session.totals.cost_usd
    answers = await conversation.beside(ask_everyone(conversation, names, question))
    if answers is None:
        return Failure(_CALLED_OFF)
    parts = [
        f"**{item.agent_id.rpartition('-')[0]}**\n\n{item.problem or item.result.text.strip()}"
        for item in answers
    ]
    totals = context.session.totals
    cost = money(totals.cost_usd - before, known=totals.cost_known)
    return Text("\n\n".join([*parts, f"*{cost}*"]))


async def _handoff(context: Context, argument: str) -> Result:
    """Let another agent take over, with a summary."""
    from aar.runtime.review import hand_over

    need_idle(context)
    name, _, wish = argument.partition(" ")
    if not name:
        return _agents_to_choose(context)
    context.runtime.extras.profile(name)
    conversation = context.conversation
    summary = await conversation.beside(hand_over(conversation, name, wish.strip()))
    if summary is None:
        return Failure(_CALLED_OFF)
    conversation.set_agent(name, by="handoff")
    if not wish.strip():
        return Text(f"{name} works from now on and knows this:\n\n{summary}")
    return Submit(wish.strip(), f"{name} takes over:\n\n{summary}")


def _agents_to_choose(context: Context) -> Result:
    items = [
        ChoiceItem(item.name, f"/handoff {item.name}", one_line(item.description))
        for item in context.runtime.extras.profiles.values()
    ]
    return Choice(
        "Hand this session over to", tuple(items), "/handoff NAME WORDS also tells what to do next."
    )


async def _route(context: Context, argument: str) -> Result:
    """Show the router's rules, or switch it."""
    from aar.orchestration.router import routes_of

    runtime = context.runtime
    counsel = runtime.extras.counsel
    if argument in ("on", "off"):
        counsel.routing = argument == "on"
    elif argument:
        raise UsageError("Write /route, /route on or /route off.")
    routes = routes_of(runtime.config.agents.get("routes"), runtime.extras.profiles)
    state = "on" if counsel.routing else "off"
    small = (
        "the small model is asked where no rule fits" if runtime.config.agents.get("router") is True else ""
    )
    if not routes:
        return Text(f"The router is {state}; [agents] routes has no rules. {small}".strip())
    rows = tuple(
        (str(at), item.match.pattern, item.agent or "", item.model or "") for at, item in enumerate(routes, 1)
    )
    return Table(f"The router is {state}", ("rule", "prompts with", "agent", "model"), rows, small)


def _agent_names(context: Context, text: str) -> Sequence[str]:
    return starting_with(list(context.runtime.extras.profiles), text) if " " not in text else []


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("review", "Review a change; show, apply or put aside what was found.", _review,
                usage="[BRANCH|A..B|pr] [FOCUS] | findings | show N | apply N | dismiss N", group="work",
                complete=_complete_review, example="/review main error handling"),
        Command("security-review", "Look for weaknesses in a change; findings as with /review.", _security,
                usage="[BRANCH|A..B|pr] [FOCUS]", group="work", complete=_complete_review,
                example="/security-review HEAD~1"),
        Command("critic", "Let a critic judge answers before they are final.", _critic,
                usage="[ROUNDS [PROVIDER/MODEL]|off]", group="work", example="/critic 1"),
        Command("advisors", "Ask agents for advice before each turn.", _advisors, usage="[NAME…|off]",
                group="work", complete=_agent_names, example="/advisors explore security"),
        Command("ask-all", "Ask several agents one question side by side.", _ask_all,
                usage="[NAME,NAME] QUESTION", group="work", complete=_agent_names,
                example="/ask-all plan,security how should sessions expire?"),
        Command("handoff", "Let another agent take over, with a summary.", _handoff, usage="[AGENT [WORDS]]",
                group="work", complete=_agent_names, example="/handoff coder do the first step"),
        Command("route", "Show the router's rules, or switch it.", _route, usage="[on|off]", group="work"),
    ]  # fmt: skip
