"""One ``aar run`` as a child process, and what it came to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from aar.config.paths import project_key, project_root
from aar.core.totals import TotalsFold
from aar.memory.event_lines import read_events
from aar.memory.file_lock import try_lock
from aar.orchestration.batch_results import TaskResult, status_of
from aar.orchestration.batch_tasks import BatchTask
from aar.protocol.errors import AarError
from aar.protocol.events import AssistantMessage, StateEvent
from aar.protocol.ports import Spawner, SpawnRequest
from aar.protocol.state import StopReason, exit_code
from aar.protocol.usage import Usage

_MAX_OUTPUT: Final = 50_000_000
_GRACE_S: Final = 60.0
"""Seconds that a run gets beyond its own limit of time before it is killed."""


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What all runs of a batch have in common.

    Attributes:
        cwd: Folder of the process, against which relative paths in flags count.
        flags: Words for ``aar run`` before those of the task.
        model: As the flag; also the next ones.
        mode: Permission mode.
        agent: Who works.
        verify: Commands that must pass, for tasks that name none.
        max_steps: Model requests at most.
        max_cost: US dollars at most.
        timeout: Seconds at most.
        environ: Additions to the environment.
    """

    cwd: Path
    flags: tuple[str, ...] = ()
    model: str | None = None
    mode: str | None = None
    agent: str | None = None
    verify: tuple[str, ...] = ()
    max_steps: int | None = None
    max_cost: float | None = None
    timeout: float | None = None
    environ: Mapping[str, str] | None = None


def own_command() -> tuple[str, ...]:
    """Return the words that start this aar once more.

    ``-P``: it starts in the project's folder, whose own modules (`types.py` …) are none of aar's.
    """
    return (sys.executable, "-P", "-m", "aar")


def run_words(
    task: BatchTask, options: ChildOptions, cwd: Path, max_cost: float | None = None
) -> tuple[str, ...]:
    """Return the words of ``aar run`` for a task; the prompt comes on standard input.

    Args:
        task: Whose own values come before those of ``options``.
        options: Those of all tasks.
        cwd: Where it works.
        max_cost: US dollars that are left for it, if there is a limit.
    """
    limits = [usd for usd in (task.max_cost or options.max_cost, max_cost) if usd is not None]
    given: list[tuple[str, Any]] = [
        ("--model", task.model or options.model),
        ("--mode", task.mode or options.mode),
        ("--agent", task.agent or options.agent),
        ("--max-steps", task.max_steps or options.max_steps),
        ("--max-cost", f"{min(limits):.6f}" if limits else None),
        ("--timeout", task.timeout or options.timeout),
        ("--title", task.name),
        *(("--verify", command) for command in task.verify or options.verify),
        *(("--set", f"{key}={_toml(value)}") for key, value in task.settings.items()),
    ]
    words = [f"{flag}={value}" for flag, value in given if value is not None]
    return (
        *own_command(),
        "run",
        "--output=json",
        "--quiet",
        f"--cwd={cwd}",
        *options.flags,
        *words,
        "-",
    )


def _toml(value: Any) -> str:
    """JSON of plain values and lists is TOML too."""
    return json.dumps(value, ensure_ascii=False)


async def run_child(
    spawner: Spawner,
    words: Sequence[str],
    prompt: str,
    options: ChildOptions,
    timeout_s: float | None = None,
) -> TaskResult:
    """Let a child do a task; cancelling ends it and all that it started.

    Returns:
        The result, as yet without the task's id and changes.
    """
    ended = await spawner.run(
        SpawnRequest(
            tuple(words),
            options.cwd,
            # The child is aar itself: it needs the user's keys and settings, and walls in its own commands.
            env={**os.environ, **(options.environ or {})},
            kind="helper",
            stdin=prompt.encode("utf-8", "surrogateescape"),
            timeout_s=None if timeout_s is None else timeout_s + _GRACE_S,
            max_output=_MAX_OUTPUT,
            merge_stderr=False,
        )
    )
    told = ended.stderr.decode("utf-8", "replace").strip()
    code = 7 if ended.exit_code is None else ended.exit_code
    try:
        fields = cast("dict[str, Any]", json.loads(ended.output))
        error = cast("dict[str, Any]", fields.get("error") or {})
        return TaskResult(
            id="",
            status=status_of(int(fields["exit_code"])),
            exit_code=int(fields["exit_code"]),
            stop_reason=str(fields["stop_reason"]),
            text=str(fields["text"]),
            error=error.get("message"),
            session_id=fields.get("session_id"),
            cost_usd=fields.get("cost_usd"),
            usage=Usage.model_validate(fields.get("usage") or {}),
            steps=int(fields.get("steps") or 0),
            duration_s=round(ended.duration_s, 2),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        end = "was killed for time" if ended.timed_out else f"ended with code {code}"
        message = f"aar run {end} without a result. {told[-500:]}".strip()
        code = code if code > 0 else 7
        return TaskResult(
            id="", status="failed", exit_code=code, error=message, duration_s=round(ended.duration_s, 2)
        )


def session_of(sessions: Path, cwd: Path) -> Path | None:
    """Return the newest session file of a folder in which one run worked."""
    folder = sessions / project_key(project_root(cwd))
    return max(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns, default=None)


async def let_go(file: Path, seconds: float = 20) -> None:
    """Wait until no process holds a session: a child may live a moment longer than who started it."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        async with asyncio.timeout(seconds):
            while not try_lock(descriptor):  # noqa: ASYNC110 - a lock sends no event
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    finally:
        os.close(descriptor)  # gives the lock back


def result_of_session(file: Path) -> tuple[TaskResult, bool]:
    """Return what a session tells of its last run, and whether that run came to its own end."""
    fold, text, last = TotalsFold(), "", None
    with contextlib.suppress(AarError, OSError):
        for event in read_events(file):
            fold.apply(event)
            if event.agent_id != "main":
                continue
            if isinstance(event, AssistantMessage):
                text = event.content
            elif isinstance(event, StateEvent):
                last = event
    reason = last.stop_reason if last is not None else None
    code = int(exit_code(reason)) if reason is not None else 7
    result = TaskResult(
        id="",
        status=status_of(code),
        exit_code=code,
        stop_reason=str(reason or "error"),
        text=text,
        session_id=file.stem,
        cost_usd=fold.cost_usd if fold.cost_known else None,
        usage=fold.usage,
        steps=fold.steps,
    )
    return result, reason is not None and reason is not StopReason.CANCELLED
