"""What stands before the first request of a run: the prompt, looked at, and what is put beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aar.core.hook_points import PromptBlockedError, hook_context
from aar.core.prompt_queue import as_prompt
from aar.core.run import Run, check_context
from aar.core.verify.verifier import describe_failure
from aar.protocol.errors import UsageError
from aar.protocol.messages import ContentBlock, ResourceBlock, TextBlock

if TYPE_CHECKING:
    from aar.core.agent_types import Survey
    from aar.core.coaching.files_coach import FilesCoach
    from aar.core.run_record import RunRecord
    from aar.protocol.events import Event
    from aar.protocol.ports import Hooks
    from aar.tools.executor import ToolExecutor


def words_of(content: Sequence[ContentBlock]) -> str:
    """Return the text of a prompt, without what is attached to it."""
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def checked_prompt(prompt: str | Sequence[ContentBlock], max_chars: int) -> tuple[ContentBlock, ...]:
    """Return what a run begins with.

    Raises:
        UsageError: It is empty, or longer than ``max_chars``.
    """
    content = as_prompt(prompt)
    length = sum(len(block.text) for block in content if isinstance(block, TextBlock | ResourceBlock))
    if length > max_chars:
        raise UsageError(
            f"The prompt is {length:,} characters long and [context] max_prompt_chars is "
            f"{max_chars:,}; put long material into a file and name that."
        )
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in content):
        raise UsageError("The prompt is empty; say what to do.")
    return content


async def ask_hooks(hooks: Hooks | None, prompt: Sequence[ContentBlock], record: RunRecord) -> list[Event]:
    """Tell hooks of the prompt; return what they add.

    Raises:
        PromptBlockedError: One objects; then the prompt is not stored either.
    """
    if hooks is None or not hooks.wants("prompt_submit"):
        return []
    said = await hooks.fire("prompt_submit", {"prompt": words_of(prompt)})
    if said.refusal is not None:
        record.prompted = True
        raise PromptBlockedError(said.refusal)
    return hook_context(said, "prompt")


def why_not_attached(executor: ToolExecutor, path: str) -> str | None:
    """Return why policy does not let a prompt attach ``path``; ``None``: it does."""
    spec = executor.registry.get("read_file")
    if spec is None:
        return None
    decision = executor.policy.decide(spec, {"path": path})
    if decision.decision == "allow":
        return None
    reasons = "; ".join(decision.reasons) or "the rules do not allow it"
    return f"{reasons}." if decision.decision == "deny" else f"{reasons}, so reading it must be asked for."


async def show_project(
    content: Sequence[ContentBlock], coach: FilesCoach, survey: Survey | None, run: Run, record: RunRecord
) -> None:
    """Give a model that cannot look around the files that matter and the failing check."""
    check = await run.first_check()
    failure = "" if check is None or check.passed else describe_failure(check)
    if survey is not None:
        coach.project.refresh(await survey())
    record.append(await asyncio.to_thread(coach.opening, words_of(content), failure))
    if check is not None and not check.passed:
        record.append(check_context(check))
