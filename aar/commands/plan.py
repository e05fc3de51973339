"""The plan of the session and the goal of its runs: made, shown, changed, approved, run."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Submit,
    Text,
    UiAction,
    fence,
    need_idle,
    starting_with,
)
from aar.protocol.errors import ToolFailure, UsageError

_VERBS = ("show", "edit", "approve", "run", "skip", "save", "mermaid", "drop", "set")
_BARE = frozenset({"show", "edit", "run", "mermaid", "drop"})
_NO_GOAL = 'There is no goal. /goal "pytest -q" PROMPT works until that command passes.'
_GOAL = """\
Work until this check passes: {goal}

It is run each time you end, and you are told what it says. Look at what it says now, find the cause, and \
mend that; do not weaken the check."""


async def _plan(context: Context, argument: str) -> Result:
    """Show the plan, do something with it, or let the model make one."""
    verb, _, rest = argument.partition("\n") if argument.startswith("set\n") else argument.partition(" ")
    rest = rest.strip()
    if argument == "off":
        return _leave(context)
    if not argument and context.session.totals.task_plan is None:
        _enter(context)
        return Text("Mode plan: the agent looks around and answers with a plan. /plan off ends it.")
    if not argument:
        return _shown(context)
    if verb not in _VERBS or (verb in _BARE and rest):
        return await _make(context, argument)
    doing: dict[str, Callable[[Context, str], Result | Awaitable[Result]]] = {
        "show": lambda context, rest: _shown(context),
        "edit": _edit,
        "set": _set,
        "approve": _approve,
        "run": _run,
        "skip": _skip,
        "save": _save,
        "mermaid": _mermaid,
        "drop": _drop,
    }
    result = doing[verb](context, rest)
    return await result if isinstance(result, Awaitable) else result


async def _make(context: Context, goal: str) -> Result:
    """Let an extension that plans make a plan, else the model, in mode plan."""
    from aar.orchestration.plan_prompts import MAKE
    from aar.runtime.plan import set_down

    need_idle(context)
    planner = await context.runtime.extras.extensions.planner(context.session)
    items = () if planner is None else await planner.plan(goal)
    _enter(context)
    if planner is not None and items:
        set_down(context.session, goal, items, f"made by the extension {planner.name}")
        return _shown(context)
    return Submit(MAKE.format(goal=goal), note="Mode plan: nothing is changed; /plan off ends it.")


def _enter(context: Context) -> None:
    conversation = context.conversation
    if conversation.mode != "plan":
        conversation.mode_before_plan = conversation.mode
        conversation.set_mode("plan", by="plan")


def _leave(context: Context) -> Result:
    conversation = context.conversation
    if conversation.mode != "plan":
        return Text(f"Mode {conversation.mode} holds already.")
    conversation.set_mode("ask", by="plan")
    return Text("Mode ask: the plan can be carried out now; each change is asked for.")


def _shown(context: Context) -> Result:
    from aar.orchestration.plan_text import view
    from aar.runtime.plan import current

    plan = current(context.session)
    how = "`/plan run` does it, `/plan edit` changes it, `/plan approve ID…` leaves the other steps out."
    if plan.stage == "running" and context.conversation.running:
        how = "It runs; interrupting it keeps what is done, and `/plan run` goes on."
    return Text(f"{fence(view(plan))}\n\n{how}")


def _edit(context: Context, _rest: str) -> Result:
    from aar.orchestration.plan_text import to_markdown
    from aar.runtime.plan import current

    need_idle(context)
    text = f"/plan set\n{to_markdown(current(context.session))}"
    if "fill" in context.actions:
        return UiAction("fill", {"argument": text})
    return Text(f"Change this and send it:\n\n{fence(text, 'markdown')}")


def _set(context: Context, rest: str) -> Result:
    from aar.runtime.plan import edit

    need_idle(context)
    edit(context.runtime, context.session, rest)
    return _shown(context)


def _approve(context: Context, rest: str) -> Result:
    from aar.runtime.plan import approve

    need_idle(context)
    approve(context.session, rest.replace(",", " ").split())
    return _shown(context)


async def _run(context: Context, _rest: str) -> Result:
    conversation = context.conversation
    need_idle(context)
    if conversation.mode == "plan":
        from aar.runtime.plan import current

        current(context.session)
        usual = conversation.runtime.config.permissions.mode or "ask"
        back = conversation.mode_before_plan or ("ask" if usual in ("plan", "unsafe") else usual)
        conversation.set_mode(back, by="plan")
    conversation.run_plan()
    return Text(f"The plan runs in mode {conversation.mode}.")


def _skip(context: Context, rest: str) -> Result:
    from aar.runtime.plan import skip

    need_idle(context)
    if not rest:
        raise UsageError("Say which step: /plan skip ID.")
    plan = skip(context.session, rest)
    after = [item.id for item in plan.items if rest in item.depends_on]
    return Text(f"Step {rest} is left out." + (f" {', '.join(after)} go on without it." if after else ""))


async def _save(context: Context, rest: str) -> Result:
    from aar.orchestration.plan_text import to_markdown, to_mermaid
    from aar.runtime.plan import current

    path = rest or "plan.md"
    plan = current(context.session)
    text = to_mermaid(plan) if path.endswith((".mmd", ".mermaid")) else to_markdown(plan)
    files = context.runtime.files()

    def write() -> None:
        if files.exists(path):
            files.read_bytes(path)
        files.write_bytes(path, text.encode())

    try:
        await asyncio.to_thread(write)
    except ToolFailure as error:
        return Failure(error.message)
    return Text(f"The plan is saved as {path}.")


def _mermaid(context: Context, _rest: str) -> Result:
    from aar.orchestration.plan_text import to_mermaid
    from aar.runtime.plan import current

    return Text(fence(to_mermaid(current(context.session)), "mermaid"))


def _drop(context: Context, _rest: str) -> Result:
    from aar.runtime.plan import drop

    need_idle(context)
    drop(context.session)
    return Text("The plan is dropped.")


def _complete_plan(context: Context, text: str) -> Sequence[str]:
    verb, space, rest = text.partition(" ")
    plan = context.session.totals.task_plan
    if space and verb in ("approve", "skip") and plan is not None:
        done = rest.split()[:-1] if not rest.endswith(" ") else rest.split()
        known = starting_with([item.id for item in plan.items], rest.rpartition(" ")[2])
        return [" ".join((verb, *done, name)) for name in known if name not in done]
    return starting_with([*(verb for verb in _VERBS if verb != "set"), "off"], text)


# --- goals -------------------------------------------------------------------------------------------------


async def _goal(context: Context, argument: str) -> Result:
    """Show the goal, set one and work until it is met, or take it away."""
    from aar.tools.criteria import parse_criterion

    conversation, goal = context.conversation, context.session.totals.goal
    if not argument:
        return Text(f"Runs go on until this passes: `{goal}`." if goal else _NO_GOAL)
    need_idle(context)
    if argument.lower() in ("off", "none"):
        conversation.set_goal(None)
        return Text("There is no goal any more.")
    text, more = _goal_and_prompt(argument)
    criterion = parse_criterion(text).text
    if conversation.mode == "plan":
        raise UsageError("Mode plan changes nothing, so no goal can be reached; choose another mode first.")
    conversation.set_goal(criterion)
    prompt = _GOAL.format(goal=criterion)
    return Submit(f"{more}\n\n{prompt}" if more else prompt, note=f"Works until this passes: {criterion}")


def _goal_and_prompt(argument: str) -> tuple[str, str]:
    """Split ``"CMD" words``; without quotes at its start all of it is the check."""
    if argument[0] not in "\"'":
        return argument, ""
    try:
        first = shlex.split(argument)[0]
    except ValueError:
        raise UsageError("The quotes of the goal do not close.") from None
    end = argument.find(argument[0], 1)
    while end > 0 and argument[end - 1] == "\\":
        end = argument.find(argument[0], end + 1)
    return first, argument[end + 1 :].strip()


def commands() -> list[Command]:
    """Return the commands of this family."""
    make = partial(Command, group="work")
    return [
        make("plan", "Make a plan, show it, change it, approve it, run it.", _plan,
             usage="[GOAL|off|run|edit|approve [ID…]|skip ID|save [FILE]|mermaid|drop]",
             complete=_complete_plan, example="/plan split the parser into modules"),
        make("goal", "Work until a check passes.", _goal, usage='["CHECK" [PROMPT]|off]',
             example='/goal "pytest -q" Make the cache thread-safe'),
    ]  # fmt: skip
