"""What agents are told that do a step of a plan, and a model that is to change a plan."""

from __future__ import annotations

from aar.orchestration.plan_text import view
from aar.protocol.events import PlanEvent, PlanItem
from aar.safety.outside import framed

_REPORT_CHARS = 3000
MAKE = """\
Make a plan for this, and change nothing yet:

{goal}

First look at what it touches. Ask me (ask_user) only what you cannot find out and what would change the \
plan. Then set the plan down with the tool plan: steps that each do one meaningful thing, in detail enough \
for an agent that knows nothing of this conversation; which steps need which; for each a check in done_when, \
at best a command that fails now and passes afterwards; read_only for steps that only find something out. \
End with open questions and risks in a few sentences; I decide whether and how it is run."""
_STEP = """\
You do one step of a plan. Do this step and nothing of the others.

The plan: {outline}

Your step: {name}. {title}{detail}{files}
{check}{before}{told}"""
_REPLAN = """\
The plan does not work as it is. {why}

The plan as it stands:
{outline}

Find out why, without changing anything. Then call the tool plan once with the complete new plan: completed \
steps stay as they are, the others you may change, split, drop or replace. Another way to the same goal is \
better than the same step once more. Keep ids of steps that stay the same, and give new ones new ids. If the \
goal cannot be reached, do not call the tool and say why."""


def step_prompt(plan: PlanEvent, item: PlanItem, told: str = "") -> str:
    """Return the task of the agent that does ``item``.

    Args:
        plan: The plan as it stands.
        item: The step.
        told: What the user said meanwhile.
    """
    check = f"It is done when this passes: {item.done_when}\nMake sure of it before you end.\n"
    return _STEP.format(
        outline=view(plan, width=100),
        name=item.id,
        title=item.title,
        detail=f"\n{item.detail}" if item.detail else "",
        files=f"\nFiles: {', '.join(item.files)}" if item.files else "",
        check=check if item.done_when else "",
        before=_before(plan, item),
        told=f"\nThe user said meanwhile: {told}\n" if told else "",
    ).strip()


def _before(plan: PlanEvent, item: PlanItem) -> str:
    """Return what came of the steps that this one needs, and of earlier attempts at it."""
    reports = [
        framed(other.note[:_REPORT_CHARS], f"result of step {other.id}")
        for other in plan.items
        if other.id in item.depends_on and other.note and other.status == "completed"
    ]
    text = "\nWhat came of the steps before it:\n" + "\n".join(reports) + "\n" if reports else ""
    if item.note:
        failed = framed(item.note[:_REPORT_CHARS], "earlier attempt")
        text += (
            f"\nAn earlier attempt did not get through; look at what is there before you begin:\n{failed}\n"
        )
    return text


def again_prompt(item: PlanItem) -> str:
    """Return what an agent is told whose work did not pass the check."""
    said = framed(item.note[:_REPORT_CHARS], "check")
    return f"Your step is not done: {item.done_when or 'the attempt failed'}\n{said}\nMend it and end again."


def replan_prompt(plan: PlanEvent, why: str) -> str:
    """Return what a model is told that is to change ``plan``."""
    return _REPLAN.format(why=why, outline=view(plan))
