"""The tools todo, plan and ask_user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from pydantic import Field, model_validator

from aar.protocol.errors import ToolCategory, ToolFailure, UsageError
from aar.protocol.events import PlanItem
from aar.protocol.ports import ToolContext
from aar.protocol.tool import ToolOutcome, ToolSpec
from aar.tools.builtin.planning_graph import advice, graph_problem
from aar.tools.criteria import settled
from aar.tools.schema import ToolArgs, tool_spec

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_SIGNS: Final = {
    "pending": "[ ]",
    "in_progress": "[>]",
    "executing": "[>]",
    "completed": "[x]",
    "cancelled": "[-]",
    "skipped": "[-]",
    "failed": "[!]",
    "blocked": "[~]",
}
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
Inputs: goal, in a sentence; items, the complete plan, each with title and, where it helps, id, detail, \
depends_on (ids of other items), done_when, agent, files, read_only and status. done_when is a shell \
command that passes when the step is done, or one of `file: PATH`, `changed: PATH`, `text: PATH =~ REGEX`, \
`schema: SCHEMA FILE`, `user: QUESTION`, `judge: WHAT MUST BE TRUE`. Each step is done by an agent that \
knows nothing but the plan: say in detail all that it needs.
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
    detail: str = Field(default="", description="What is to be done, and how.")
    depends_on: list[str] = Field(default=[], description="Ids of steps that come first.")
    done_when: str | None = Field(default=None, description="Command or other check that passes when done.")
    agent: str | None = Field(default=None, description="Agent that does it.")
    files: list[str] = Field(default=[], description="Files that it is about.")
    read_only: bool = Field(default=False, description="Whether it changes nothing.")

    @model_validator(mode="before")
    @classmethod
    def _keep_names(cls, data: Any) -> Any:
        """Take numbers for ids, and ``description`` beside a title for the detail."""
        if not isinstance(data, dict):
            return data
        given = dict(cast("dict[str, Any]", data))
        if isinstance(given.get("id"), int):
            given["id"] = str(given["id"])
        needs = given.get("depends_on")
        if isinstance(needs, list):
            given["depends_on"] = [str(each) for each in cast("list[object]", needs)]
        for name in ("description", "details", "content"):
            if given.get("title") and isinstance(given.get(name), str):
                given.setdefault("detail", given.pop(name))
        for name in ("expected_output", "check", "verify"):
            if isinstance(given.get(name), str):
                given.setdefault("done_when", given.pop(name))
        return given


class TodoArgs(ToolArgs):
    """Arguments of todo."""

    items: list[TodoItem] = Field(max_length=MAX_ITEMS, description="The complete list.")


class PlanArgs(ToolArgs):
    """Arguments of plan."""

    items: list[PlanStep] = Field(max_length=MAX_ITEMS, description="The complete plan.")
    goal: str = Field(default="", description="What the plan is for, in a sentence.")


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
    items = [_item(number, step, ctx) for number, step in enumerate(args.items, 1)]
    problem = graph_problem(items)
    if problem:
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, problem)
    if ctx.write_plan is None:
        ctx.set_plan(items)
    else:
        items = list(ctx.write_plan(items, args.goal))
    return ToolOutcome("\n".join((shown(items, "plan"), *advice(items))))


def _item(number: int, step: PlanStep, ctx: ToolContext) -> PlanItem:
    name = "-".join((step.id or "").split()) or str(number)
    check = (step.done_when or "").strip()
    try:
        done_when = settled(check, ctx.workspace) if check else None
    except UsageError as error:
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"done_when of step {name}: {error}") from error
    return PlanItem(
        id=name,
        title=" ".join(step.title.split()),
        status=step.status,
        depends_on=tuple("-".join(each.split()) for each in step.depends_on),
        done_when=done_when,
        detail=step.detail.strip(),
        agent=(step.agent or "").strip() or None,
        files=tuple(step.files),
        read_only=step.read_only,
    )


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
