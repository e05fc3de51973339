"""The checks that end a run, put together for an agent: what they look at, whom they ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.core.verify.verifier import Evidence, Senses, Verifier
from aar.protocol.events import ToolCall
from aar.protocol.ids import new_id
from aar.protocol.usage import Usage
from aar.runtime.questions import ASK_TOOL, make_ask

if TYPE_CHECKING:
    from aar.core.agent import Agent
    from aar.core.session import Session
    from aar.core.verify.checks import Readable
    from aar.runtime.parts import Runtime


def make_verifier(runtime: Runtime, session: Session, agent: Agent, files: Readable) -> Verifier | None:
    """Return what must hold before a run of ``agent`` is done: ``[verify] commands`` and the session's goal.

    In mode plan there is no work that could be checked.

    Raises:
        UsageError: A check cannot be read.
    """
    settings, goal = runtime.config.verify, session.totals.goal
    criteria = (*settings.commands, *((goal,) if goal else ()))
    if not criteria or agent.executor.policy.mode == "plan":
        return None
    from aar.runtime.judge import make_judge

    def evidence() -> Evidence:
        record = agent.record
        return Evidence() if record is None else Evidence(record.text, record.diffs, record.task)

    def count(usage: Usage, cost_usd: float | None) -> None:
        if agent.limits is not None:
            agent.limits.count(usage, cost_usd)

    ask = None
    if runtime.interactive:
        ask = make_ask(agent.approvals, ToolCall(call_id=new_id(), tool_name=ASK_TOOL), session)
    senses = Senses(files, ask, make_judge(runtime, session, count), evidence)
    return Verifier(criteria, runtime.spawner, runtime.workspace, settings, senses)
