"""Running a stored session again: offline, in a scratch copy, with what the model said then."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from aar.config.paths import project_key
from aar.core.agent import Agent
from aar.memory.checkpoints import CheckpointStore, Limits
from aar.memory.export_scenario import to_scenario
from aar.protocol.errors import ConfigurationError, StorageError
from aar.protocol.events import (
    Approval,
    ApprovalRequest,
    AssistantMessage,
    CheckpointEvent,
    Event,
    SessionEvent,
    StateEvent,
    ToolCall,
    ToolResult,
)
from aar.runtime.base import Base
from aar.runtime.opening import open_runtime
from aar.runtime.parts import Runtime
from aar.safety.spawn import ProcessSpawner

_SHOWN_CHARS: Final = 300
_MOST_GIT_BYTES: Final = 200_000_000
_REFUSED: Final = frozenset({"denied", "blocked"})
_OUTSIDE: Final = frozenset({"web_fetch", "web_search"})
# What differs from one time to the next and means nothing: durations, times of day, addresses in memory.
_CHANGING: Final = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds|µs|us)\b|\b\d\d:\d\d:\d\d(?:\.\d+)?\b|\b0x[0-9a-f]{6,}\b|[0-9A-HJKMNP-TV-Z]{26}"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the session went another way.

    Attributes:
        seq: Event of the stored session; its last where the new one went on longer.
        what: Kind of what differs, such as ``tool_result bash``.
        then: What was; empty: nothing more.
        now: What is.
    """

    seq: int
    what: str
    then: str
    now: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """How running a session again went.

    Attributes:
        session_id: The stored session.
        files: Where the scratch copy came from, in words.
        prompts: Prompts that were given again.
        compared: Answers, calls, results and ends that were compared.
        difference: The first difference; ``None``: it went the same way.
        scratch: The scratch copy, where it was kept.
    """

    session_id: str
    files: str
    prompts: int
    compared: int
    difference: Difference | None
    scratch: Path | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        return {**plain, "scratch": str(self.scratch) if self.scratch else None}


async def rerun(base: Base, session_id: str, *, keep: bool = False) -> Rerun:
    """Run a stored session again and compare.

    The prompts are given to a new session, the model's answers come from the old one, tools run in a copy of
    the workspace as it was at the session's first checkpoint (as it is now where there is none), behind the
    wall and with no hosts allowed. Questions are answered as they were then.

    Args:
        base: Folders and settings.
        session_id: The whole id.
        keep: Whether to leave the scratch copy there.

    Raises:
        ConfigurationError: There is nothing to run, or no wall that holds.
        StorageError: The session cannot be read.
    """
    events = list(base.store().read(session_id))
    scenario = to_scenario(events)
    if not scenario["prompts"] or not any("status" in step or "usage" in step for step in scenario["steps"]):
        raise ConfigurationError(f"The session {session_id} has no answer of a model to run again.")
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aar-rerun-"))
    try:
        workspace = folder / base.workspace.name
        origin = Path(
            next((e.cwd for e in events if isinstance(e, SessionEvent) and e.cwd), str(base.workspace))
        )
        files = await _copy_workspace(base, events, origin, workspace)
        # Paths that the model named must lead into the copy.
        scenario = _moved(scenario, str(origin), str(workspace))
        script = folder / "answers.json"
        await asyncio.to_thread(script.write_text, json.dumps(scenario), encoding="utf-8")
        now = await _run(events, scenario["prompts"], workspace, script, folder / "home")
        shorten = {str(workspace): str(origin)}
        then_facts, now_facts = _facts(events, {}), _facts(now, shorten)
        difference = _first_difference(then_facts, now_facts)
        compared = min(len(then_facts), len(now_facts))
        kept = workspace if keep else None
        return Rerun(session_id, files, len(scenario["prompts"]), compared, difference, kept)
    finally:
        if not keep:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


# --- the copy --------------------------------------------------------------------------------------------


async def _copy_workspace(base: Base, events: Sequence[Event], origin: Path, target: Path) -> str:
    """Make the scratch copy and return in words where it came from."""
    await asyncio.to_thread(target.mkdir, parents=True)
    first = next((event for event in events if isinstance(event, CheckpointEvent)), None)
    files = ""
    if first is not None:
        with contextlib.suppress(StorageError):
            await _restore(base, first.checkpoint_id, origin, target)
            files = "those of the first checkpoint"
    if not files:
        if not await asyncio.to_thread(origin.is_dir):
            raise ConfigurationError(f"The folder {origin} of the session is not there any more.")
        await asyncio.to_thread(_copy_tree, origin, target)
        files = "those of the folder as it is now, for there is no checkpoint of its beginning"
    await asyncio.to_thread(_copy_git, origin, target)
    return files


async def _restore(base: Base, checkpoint_id: str, origin: Path, target: Path) -> None:
    spawner = ProcessSpawner(target, base.config.sandbox, own=base.own_folders)
    try:
        settings = base.config.checkpoints
        limits = Limits(settings.max_file_mb * 1_000_000, settings.max_files)
        folder = base.paths.data / "checkpoints" / project_key(origin)
        store = CheckpointStore(folder, target, spawner, limits)
        wanted = store.get(checkpoint_id).state
        await store.restore(await store.compare(await store.peek(), wanted))
    finally:
        spawner.close()


def _copy_tree(origin: Path, target: Path) -> None:
    # Links stay links: what they lead to lies outside of the copy, where the wall keeps writers out.
    shutil.copytree(
        origin,
        target,
        symlinks=True,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(".git"),
        ignore_dangling_symlinks=True,
    )


def _copy_git(origin: Path, target: Path) -> None:
    """Copy the repository itself, unless it is large or lies elsewhere (a worktree's is a file)."""
    git = origin / ".git"
    if not git.is_dir() or git.is_symlink():
        (target / ".git").mkdir(exist_ok=True)
        return
    size = sum(file.lstat().st_size for file in git.rglob("*") if not file.is_dir())
    if size <= _MOST_GIT_BYTES:
        shutil.copytree(git, target / ".git", symlinks=True, dirs_exist_ok=True)
    else:
        (target / ".git").mkdir(exist_ok=True)


def _moved(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_moved(item, old, new) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _moved(item, old, new) for key, item in cast("dict[str, Any]", value).items()}
    return value


# --- the run ---------------------------------------------------------------------------------------------


async def _run(
    events: Sequence[Event], prompts: Sequence[str], workspace: Path, script: Path, home: Path
) -> list[Event]:
    runtime = open_runtime(
        cwd=workspace,
        model=f"scripted/{script}",
        mode="ask",
        sets=("checkpoints.enabled=false", "model.retries=1"),
        environ={**_plain_environment(os.environ), "AAR_HOME": str(home)},
        interactive=True,
    )
    try:
        if not runtime.spawner.status().enforced:
            raise ConfigurationError(
                "A session is run again only behind a wall, and there is none; see `aar doctor`."
            )
        return await _drive(runtime, events, prompts)
    finally:
        await runtime.aclose()


def _plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings of aar: the new run has those of a fresh installation."""
    return {name: value for name, value in environ.items() if not name.startswith("AAR_")}


async def _drive(runtime: Runtime, events: Sequence[Event], prompts: Sequence[str]) -> list[Event]:
    session = runtime.open_session()
    try:
        agent = runtime.agent(session)
        answers = _Answers(agent, events)
        session.on_event(answers.take)
        for prompt in prompts:
            await agent.run(prompt, session)
        return list(session.events())
    finally:
        await session.aclose()


class _Answers:
    """Answers questions as they were answered then; what was not asked may do what it did."""

    def __init__(self, agent: Agent, events: Iterable[Event]) -> None:
        self._agent = agent
        self._decided: dict[str, Approval] = {}
        self._refused: set[str] = set()
        for event in events:
            if isinstance(event, Approval):
                self._decided[event.call_id] = event
            elif isinstance(event, ToolResult) and str(event.category) in _REFUSED:
                self._refused.add(event.call_id)

    def take(self, event: Event) -> None:
        if isinstance(event, ApprovalRequest):
            # The question opens right after its event.
            asyncio.get_running_loop().call_soon(self._answer, event)

    def _answer(self, request: ApprovalRequest, tries: int = 100) -> None:
        if all(open_.request_id != request.request_id for open_ in self._agent.approvals.pending):
            if tries:
                asyncio.get_running_loop().call_later(0.01, self._answer, request, tries - 1)
            return
        known = self._decided.get(request.call_id)
        no = request.tool_name in _OUTSIDE or request.call_id in self._refused
        if known is not None and not no:
            self._agent.answer(
                request.request_id,
                known.decision,
                edited_arguments=known.edited_arguments,
                feedback=known.feedback,
            )
        else:
            self._agent.answer(request.request_id, "reject" if no else "allow")


# --- the comparison --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fact:
    seq: int
    what: str
    text: str


def _facts(events: Iterable[Event], shorten: Mapping[str, str]) -> list[_Fact]:
    """Return what the main agent said, called, got and ended with, without what changes each time."""
    facts: list[_Fact] = []
    for event in events:
        if event.agent_id == "main" and (told := _fact(event)) is not None:
            text = told[1]
            for long, short in shorten.items():
                text = text.replace(long, short)
            facts.append(_Fact(event.seq or 0, told[0], _CHANGING.sub("~", text)))
    return facts


def _fact(event: Event) -> tuple[str, str] | None:
    match event:
        case AssistantMessage() if not event.partial and event.content.strip():
            return "assistant_message", event.content
        case ToolCall():
            return f"tool_call {event.tool_name}", json.dumps(event.arguments, sort_keys=True)
        case ToolResult():
            return f"tool_result {event.tool_name}", event.output
        case StateEvent() if event.stop_reason is not None:
            return "end", str(event.stop_reason)
        case _:
            return None


def _first_difference(then: Sequence[_Fact], now: Sequence[_Fact]) -> Difference | None:
    for old, new in zip(then, now, strict=False):
        if (old.what, old.text) != (new.what, new.text):
            return Difference(old.seq, old.what, *_apart(old, new))
    if len(then) > len(now):
        missing = then[len(now)]
        return Difference(missing.seq, missing.what, _cut(missing.text), "")
    if len(now) > len(then):
        more = now[len(then)]
        return Difference(then[-1].seq if then else 0, more.what, "", _cut(more.text))
    return None


def _apart(old: _Fact, new: _Fact) -> tuple[str, str]:
    """Return the texts from the first line on in which they differ."""
    if old.what != new.what:
        return f"{old.what}: {_cut(old.text)}", f"{new.what}: {_cut(new.text)}"
    lines = zip(old.text.splitlines(), new.text.splitlines(), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], lines))
    return (
        _cut("\n".join(old.text.splitlines()[same:])),
        _cut("\n".join(new.text.splitlines()[same:])),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
