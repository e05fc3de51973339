"""Commands that the user types (``!cmd``): inside the wall, under the rules, told to the model or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aar.core.approvals import PermissionManager
from aar.protocol.errors import UsageError
from aar.protocol.events import Approval, ApprovalRequest, ContextEvent
from aar.protocol.ids import new_id
from aar.protocol.messages import TextBlock
from aar.protocol.ports import SpawnRequest
from aar.runtime.conversation import Conversation
from aar.safety.policy import Decision
from aar.tools.builtin.shell import shell_program
from aar.tools.builtin.terminal_text import plain_text, shorten

SHELL_SOURCE = "shell"
"""``source`` of the `ContextEvent` that tells the model what the user ran; its label is the command."""
MAX_SECONDS = 600.0
"""Seconds until a command is ended."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a user's command ended.

    Attributes:
        output: What it wrote, as text, cut in the middle where it is very long.
        exit_code: ``None`` when it was stopped.
        wall: The wall that held.
        timed_out: Whether it was stopped for time.
        seconds: Wall-clock seconds.
    """

    output: str
    exit_code: int | None
    wall: str
    timed_out: bool
    seconds: float


async def run_user_command(
    conversation: Conversation,
    command: str,
    *,
    private: bool = False,
    on_output: Callable[[str], None] = lambda text: None,
) -> ShellResult:
    """Run ``command`` for the user; cancelling ends it with all its children.

    What the rules deny does not run. What they would ask about runs, for the user typed it; only a hard stop
    (``rm -rf /``, ``git push --force`` …) is asked about.

    Args:
        conversation: Where it belongs.
        command: For the shell.
        private: Whether the model does not get to see it; nothing of it is stored then.
        on_output: Gets every piece of output as it comes.

    Raises:
        UsageError: It is not allowed.
        SandboxError: The wall could not be raised.
        OSError: It could not be started.
    """
    runtime, session = conversation.runtime, conversation.session
    await _check(conversation, command)
    request = SpawnRequest(
        (shell_program(), "-c", command),
        runtime.workspace,
        timeout_s=MAX_SECONDS,
        read_only=runtime.mode == "plan",
        max_output=4 * runtime.config.tools.max_output_chars,
    )
    ended = await runtime.spawner.run(request, lambda data: on_output(plain_text(data)))
    text = shorten(plain_text(ended.output), runtime.config.tools.max_output_chars, "")
    result = ShellResult(text, ended.exit_code, ended.wall, ended.timed_out, ended.duration_s)
    if not private and session is conversation.session:
        session.append(_told(command, result))
    return result


def _told(command: str, result: ShellResult) -> ContextEvent:
    if result.timed_out:
        end = f"It was stopped after {result.seconds:.0f} s."
    else:
        end = f"Exit code: {result.exit_code}"
    output = result.output.rstrip("\n") or "(no output)"
    text = f"The user ran this command: {command}\n{end}\n{output}"
    return ContextEvent(source=SHELL_SOURCE, label=command, content=(TextBlock(text=text),), trusted=False)


async def _check(conversation: Conversation, command: str) -> None:
    agent = conversation.agent
    spec = agent.executor.registry.get("bash")
    if spec is None:
        raise UsageError("There is no shell here: the tool bash is not enabled.")
    arguments = {"command": command}
    decision = await asyncio.to_thread(agent.executor.policy.decide, spec, arguments)
    if decision.decision == "deny":
        reasons = "; ".join(decision.reasons) or "the rules do not allow it"
        raise UsageError(f"The command did not run: {reasons}.")
    if decision.decision == "ask" and decision.hard_stop:
        await _ask(conversation, agent.approvals, command, decision)


async def _ask(
    conversation: Conversation, approvals: PermissionManager, command: str, decision: Decision
) -> None:
    session = conversation.session
    request = ApprovalRequest(
        request_id=new_id(),
        call_id=f"user-{new_id()}",
        tool_name="bash",
        arguments={"command": command},
        wall=conversation.runtime.wall(),
        why={"rule": None, "reasons": ["you typed this command", *decision.reasons]},
    )
    session.append(request)
    answer = Approval(
        request_id=request.request_id, call_id=request.call_id, decision="cancelled", by="policy"
    )
    try:
        answer = await approvals.decide(request)
    finally:
        session.append(answer)
    if answer.decision != "allow" or answer.edited_arguments not in (None, dict(request.arguments)):
        raise UsageError("The command did not run: you did not allow it.")
