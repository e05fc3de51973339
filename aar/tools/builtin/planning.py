"""The tools todo, plan and ask_user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from pydantic import Field, model_validator

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.events import PlanItem
from aar.protocol.ports import ToolContext
from aar.protocol.tool import ToolOutcome, ToolSpec
from aar.tools.schema import ToolArgs, tool_spec

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_SIGNS: Final = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
_OTHER_WORDS: Final = {
    "done": "completed",
    "complete": "completed",
    "finished": "completed",
    "todo": "pending",
    "open": "pending",
    "not_started": "pending",
    "doing": "in_progress",
    "active": "in_progress",
    "in-progress": "in_progress",
    "in progress": "in_progress",
    "canceled": "cancelled",
    "skipped": "cancelled",
}
MAX_ITEMS: Final = 100

TODO_DESCRIPTION: Final = f"""\
Keep the list of things to do for the present task, visible to the user.
When: for work of three or more steps, at its start and whenever a step begins or ends. Skip it for small \
tasks.
Inputs: items, the complete list each time, each with title and status (pending, in_progress, completed, \
cancelled).
Output: the list as it now stands.
Limits: at most {MAX_ITEMS} items; the given list replaces the old one."""

PLAN_DESCRIPTION: Final = f"""\
Set down a plan whose steps may depend on each other, for the user to see and judge.
When: before larger work, above all in plan mode, and when the plan must change.
Inputs: items, the complete plan, each with title and, where it helps, id, depends_on (ids of other items), \
done_when (how to tell that it is done) and status.
Output: the plan as it now stands.
Limits: at most {MAX_ITEMS} items; ids must differ, and dependencies must exist and not go in a circle."""

ASK_DESCRIPTION: Final = """\
Ask the user one question and wait for the answer.
When: a decision is theirs and you cannot find the answer yourself; not to ask for permission to go on.
Inputs: question; options, up to 8 short answers to choose from (the user may also answer freely).
Output: the answer.
Limits: in a run without a person nobody answers; then you must decide yourself and say what you assumed."""


class TodoItem(ToolArgs):
    """One thing to do."""

    title: str = Field(min_length=1, description="What is to be done.")
    status: Status = "pending"

    @model_validator(mode="before")
    @classmethod
    def _accept_foreign(cls, data: Any) -> Any:
        """Take a bare string, ``content`` or ``step`` for the title, and other words for a status."""
        if isinstance(data, str):
            return {"title": data}
        if not isinstance(data, dict):
            return data
        given = dict(cast("dict[str, Any]", data))
        for name in ("content", "step", "task", "text", "description"):
            if "title" not in given and isinstance(given.get(name), str):
                given["title"] = given.pop(name)
        for name in ("activeForm", "active_form", "priority"):
            given.pop(name, None)
        if not cls.model_fields.keys() & {"id"}:
            given.pop("id", None)
        status = given.get("status")
        if isinstance(status, str):
            given["status"] = _OTHER_WORDS.get(status.casefold(), status.casefold())
        return given


class PlanStep(TodoItem):
    """One step of a plan."""

    id: str | None = Field(default=None, description="Short name; default: its number.")
    depends_on: list[str] = Field(default=[], description="Ids of steps that come first.")
    done_when: str | None = Field(default=None, description="How to tell that it is done.")


class TodoArgs(ToolArgs):
    """Arguments of todo."""

    items: list[TodoItem] = Field(max_length=MAX_ITEMS, description="The complete list.")


class PlanArgs(ToolArgs):
    """Arguments of plan."""

    items: list[PlanStep] = Field(max_length=MAX_ITEMS, description="The complete plan.")


class AskArgs(ToolArgs):
    """Arguments of ask_user."""

    question: str = Field(min_length=1, max_length=4000, description="The question.")
    options: list[str] = Field(default=[], max_length=8, description="Answers to choose from.")


async def todo(args: TodoArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    items = [
        PlanItem(id=str(number), title=item.title, status=item.status)
        for number, item in enumerate(args.items, 1)
    ]
    ctx.set_plan(items)
    return ToolOutcome(shown(items, "todo list"))


async def plan(args: PlanArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    items = [
        PlanItem(
            id=step.id or str(number),
            title=step.title,
            status=step.status,
            depends_on=tuple(step.depends_on),
            done_when=step.done_when,
        )
        for number, step in enumerate(args.items, 1)
    ]
    problem = plan_problem(items)
    if problem:
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, problem)
    ctx.set_plan(items)
    return ToolOutcome(shown(items, "plan"))


def plan_problem(items: Sequence[PlanItem]) -> str | None:
    """Return what is wrong with the ids and dependencies of ``items``, or ``None``."""
    ids = [item.id for item in items]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        return f"Two items have the id {', '.join(twice)}; ids must differ."
    for item in items:
        for needed in item.depends_on:
            if needed not in ids:
                return (
                    f"Item {item.id} depends on {needed}, which does not exist. There are: {', '.join(ids)}."
                )
    waiting = {item.id: set(item.depends_on) for item in items}
    while waiting:
        free = [each for each, needs in waiting.items() if not needs & waiting.keys()]
        if not free:
            return f"These items wait for each other in a circle: {', '.join(waiting)}."
        for each in free:
            del waiting[each]
    return None


def shown(items: Sequence[PlanItem], noun: str) -> str:
    """Return the list as the model and plain screens see it."""
    if not items:
        return f"The {noun} is empty now."
    done = sum(item.status == "completed" for item in items)
    lines = [f"The {noun}, {done} of {len(items)} completed:"]
    for item in items:
        line = f"{_SIGNS.get(item.status, '[ ]')} {item.id}. {item.title}"
        if item.depends_on:
            line += f" (after {', '.join(item.depends_on)})"
        if item.done_when:
            line += f" — done when {item.done_when}"
        lines.append(line)
    return "\n".join(lines)


async def ask_user(args: AskArgs, ctx: ToolContext) -> ToolOutcome:
    """Handle a call."""
    answer = await ctx.ask(args.question, args.options)
    if answer is None:
        return ToolOutcome(
            "Nobody can answer in this run. Decide yourself what is most sensible, go on, and state the "
            "assumption in your final answer."
        )
    return ToolOutcome(f"The user answered: {answer}" if answer.strip() else "The user gave no answer.")


def tools() -> list[ToolSpec]:
    """Return the tools of this family."""
    nothing = frozenset[Any]()
    return [
        tool_spec(
            "todo",
            TODO_DESCRIPTION,
            TodoArgs,
            nothing,
            todo,
            summary="Keep a visible list of things to do.",
            idempotent=True,
            aliases={"todos": "items", "list": "items", "tasks": "items"},
        ),
        tool_spec(
            "plan",
            PLAN_DESCRIPTION,
            PlanArgs,
            nothing,
            plan,
            summary="Set down a plan with dependencies.",
            idempotent=True,
            aliases={"plan": "items", "steps": "items"},
        ),
        tool_spec(
            "ask_user",
            ASK_DESCRIPTION,
            AskArgs,
            nothing,
            ask_user,
            summary="Ask the user a question.",
            aliases={"prompt": "question", "choices": "options"},
        ),
    ]
