"""Attempts at a task in work trees of git, each with an agent, a wall and a session of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aar.config.trust import TrustStore, fingerprint
from aar.core.verify import Verifier
from aar.orchestration.alternatives import (
    JUDGE,
    JUDGEMENT_SCHEMA,
    Attempt,
    Comparison,
    attempt_prompt,
    comparison_event,
    judge_text,
    ranked,
)
from aar.orchestration.consult import consult
from aar.protocol.errors import AarError, UsageError
from aar.protocol.events import ProviderMeta, Subagent, ToolCall, ToolResult
from aar.protocol.ids import new_id
from aar.protocol.messages import ResourceBlock, TextBlock
from aar.protocol.state import StopReason
from aar.runtime.opening import open_runtime
from aar.safety.git_calls import run_git

if TYPE_CHECKING:
    from aar.core.agent import RunResult
    from aar.runtime.conversation import Conversation
    from aar.runtime.parts import Runtime

PARALLEL = 3
"""Attempts at one time."""
_MOST_FILES = 5000
_MOST_BYTES = 200_000_000
_MAX_DIFF = 400_000


async def try_alternatives(
    conversation: Conversation, task: str, count: int, checks: Sequence[str]
) -> Comparison:
    """Let ``count`` agents do the same task, each in a copy of the project as it is now, and compare.

    Args:
        conversation: Where it belongs; events, costs and the comparison are stored there.
        task: What is to be done.
        count: How many attempts.
        checks: Commands that tell whether an attempt is right.

    Raises:
        UsageError: No wall holds, or the project is in no git repository.
    """
    runtime = conversation.runtime
    if not runtime.spawner.status().enforced:
        raise UsageError("Attempts run without questions, so they need a sandbox; see `aar sandbox status`.")
    places = asyncio.Semaphore(PARALLEL)

    async def attempt(number: int) -> Attempt:
        async with places:
            return await _attempt(conversation, task, number, count, checks)

    attempts = await asyncio.gather(*(attempt(number) for number in range(1, count + 1)))
    judgement, why = await _judged(conversation, task, [item for item in attempts if item.usable])
    comparison = Comparison(task, ranked(attempts, judgement), why)
    conversation.session.append(comparison_event(comparison))
    return comparison


async def _judged(
    conversation: Conversation, task: str, attempts: Sequence[Attempt]
) -> tuple[dict[str, object] | None, str]:
    """Return what a judge says; without one, checks and size decide."""
    plain = "No judge compared them: the order is by checks and size."
    if len(attempts) < 2:
        return None, "" if attempts else "None came to anything."
    agent = conversation.agent
    place = conversation.runtime.extras.main_place(conversation.session, lambda: agent)
    content = [ResourceBlock(uri=name, text=text) for name, text in judge_text(task, attempts)]
    words = TextBlock(text="Rank these attempts.")
    try:
        said = await consult(
            place,
            conversation.session,
            JUDGE,
            [*content, words],
            title="compare attempts",
            schema=JUDGEMENT_SCHEMA,
        )
    except AarError as error:
        return None, f"{plain} {error}"
    if said.problem:
        return None, f"{plain} {said.problem}"
    return said.document, str(said.document.get("why", ""))


async def _attempt(
    conversation: Conversation, task: str, number: int, count: int, checks: Sequence[str]
) -> Attempt:
    session = conversation.session
    agent_id = f"alternative-{number}-{new_id()[-4:].lower()}"
    shown = {"profile": "alternative", "task": f"attempt {number}: {task[:150]}", "agent_id": agent_id}
    session.append(Subagent.model_validate({"action": "start", **shown}))
    reason, attempt = StopReason.CANCELLED, Attempt(number, problem="called off")
    try:
        async with _work_tree(conversation.runtime) as (folder, tree):
            attempt, reason = await _work(conversation, folder, tree, task, number, count, checks, agent_id)
    except AarError as error:
        reason, attempt = StopReason.ERROR, Attempt(number, problem=str(error))
    finally:
        end = {"action": "end", "result": attempt.answer or attempt.problem, "stop_reason": reason}
        session.append(Subagent.model_validate({**shown, **end}))
    return attempt


async def _work(
    conversation: Conversation,
    folder: Path,
    tree: str,
    task: str,
    number: int,
    count: int,
    checks: Sequence[str],
    agent_id: str,
) -> tuple[Attempt, StopReason]:
    """Do the task in ``folder`` and tell what changed since ``tree``."""
    async with _runtime_in(conversation.runtime, folder) as inner:
        session = inner.open_session(title=f"Attempt {number} of {count}: {task[:60]}")
        try:
            agent = inner.agent(session)
            agent.budget = conversation.agent.budget
            result = await agent.run(attempt_prompt(task, number, count), session)
        finally:
            await session.aclose()
        _count(conversation, result, agent_id)
        diff = await _git(inner, folder, "diff", "--cached", "--no-renames", tree, stage=True)
        names = await _git(inner, folder, "diff", "--cached", "--no-renames", "--name-only", tree)
        attempt = Attempt(
            number,
            answer=result.text,
            diff=diff,
            files=tuple(names.splitlines()),
            cost_usd=result.cost_usd,
            session_id=session.session_id,
            problem=_problem(result, diff),
        )
        if checks and attempt.usable:
            verifier = Verifier(checks, inner.spawner, folder, inner.config.verify)
            check = await verifier.run()
            attempt = replace(attempt, passed=check.passed, output="" if check.passed else check.output)
    return attempt, result.stop_reason


def _problem(result: RunResult, diff: str) -> str:
    if result.stop_reason is StopReason.ERROR:
        return str((result.error or {}).get("message") or "it failed")
    if len(diff) > _MAX_DIFF:
        return f"it changed {len(diff):,} characters, too much to pick"
    if "\nBinary files " in diff:
        return "it changed files that are no text"
    return ""


def _count(conversation: Conversation, result: RunResult, agent_id: str) -> None:
    """Let the session pay for an attempt."""
    session, active = conversation.session, conversation.runtime.active
    meta = ProviderMeta(
        provider=active.name.partition("/")[0],
        model=active.model,
        usage=result.usage,
        cost_usd=result.cost_usd,
    )
    session.append(meta, scope=session.scope(new_id(), agent_id))


@asynccontextmanager
async def _runtime_in(runtime: Runtime, folder: Path) -> AsyncGenerator[Runtime]:
    """Open a runtime in a work tree, with the same model; trusted where the project is.

    The trust holds only if what is there is the same as in the project.
    """
    base = runtime.base
    same = base.trusted and fingerprint(folder).sha256 == fingerprint(base.workspace).sha256
    name = base.config.model.name or runtime.active.name
    inner = await asyncio.to_thread(open_runtime, cwd=folder, model=name, mode="auto", trust=same)
    own = inner.active
    inner.active, inner.reasoning, inner.profile = runtime.active, runtime.reasoning, runtime.profile
    try:
        yield inner
    finally:
        # The shared provider is not the inner runtime's to close.
        inner.active = own
        await inner.aclose()
        TrustStore(base.paths).forget(folder)


@asynccontextmanager
async def _work_tree(runtime: Runtime) -> AsyncGenerator[tuple[Path, str]]:
    """Make a work tree that holds the project as it is now, what is not committed included.

    Yields its folder, and the git tree of that state.
    """
    root = runtime.workspace
    if (await _git(runtime, root, "rev-parse", "--show-prefix")).strip():
        raise UsageError("Start aar in the root of the repository to try alternatives.")
    # Not below aar's own folders, which no tool may read.
    outer = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aar-alternative-"))
    folder = outer / root.name
    try:
        await _git(runtime, root, "worktree", "add", "--detach", str(folder), "HEAD")
        changed = await _git(runtime, root, "diff", "--name-only", "-z", "--no-renames", "HEAD")
        others = await _git(runtime, root, "ls-files", "-z", "--others", "--exclude-standard")
        await asyncio.to_thread(_carry, root, folder, [*changed.split("\0"), *others.split("\0")])
        await _git(runtime, folder, "add", "-A")
        yield folder, (await _git(runtime, folder, "write-tree")).strip()
    finally:
        await asyncio.to_thread(shutil.rmtree, outer, ignore_errors=True)
        await run_git(runtime.spawner, root, ("worktree", "prune"))


def _carry(root: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy what is not committed: changed and new files; what is gone goes."""
    total = 0
    wanted = [name for name in names if name]
    if len(wanted) > _MOST_FILES:
        raise UsageError(f"{len(wanted):,} files are not committed; commit or ignore some of them first.")
    for name in wanted:
        source, target = root / name, folder / name
        if source.is_symlink() or source.is_file():
            total += source.lstat().st_size
            if total > _MOST_BYTES:
                raise UsageError("Too much is not committed to copy it; commit or ignore some of it first.")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
        else:
            target.unlink(missing_ok=True)


async def _git(runtime: Runtime, folder: Path, *words: str, stage: bool = False) -> str:
    if stage:
        await _git(runtime, folder, "add", "-A")
    try:
        ended = await run_git(runtime.spawner, folder, words, timeout_s=120)
    except OSError as error:
        raise UsageError("Alternatives need git, which is not here.") from error
    if ended.exit_code != 0:
        told = " ".join(ended.stderr.decode("utf-8", "replace").split())[:300]
        raise UsageError(f"git {words[0]} failed, so there is no copy to try in: {told}")
    return ended.output.decode("utf-8", "replace")


async def pick(conversation: Conversation, attempt: Attempt) -> ToolResult:
    """Make the changes of an attempt in the project, by the way of every other edit."""
    session = conversation.session
    scope = session.scope(new_id(), "alternatives")
    call = ToolCall(call_id=f"pick-{new_id()}", tool_name="apply_patch", arguments={"patch": attempt.diff})
    stored = [event for event in scope.append(call) if isinstance(event, ToolCall)]
    step = await conversation.agent.executor.execute(stored, scope)
    return step.results[0]
