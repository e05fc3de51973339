"""``bash``, ``bash_output`` and ``kill_shell``: commands, inside the wall."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from aar.protocol.errors import SandboxError, ToolCategory, ToolFailure, tool_error_text
from aar.protocol.ports import Process, ShellLine, SpawnRequest, SpawnResult, ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.tools.builtin.terminal_text import plain_text, shorten
from aar.tools.foreground import run_unless_sent_back
from aar.tools.schema import ToolArgs, tool_spec

DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
MAX_WAIT_S = 60.0
MAX_BACKGROUND = 16
"""Background commands of one session at the same time."""
_PROGRESS_EVERY_S = 0.1
_PROGRESS_BYTES = 4096
_T = TypeVar("_T")


class BashArgs(ToolArgs):
    """Arguments of ``bash``."""

    command: Annotated[str, Field(min_length=1, max_length=100_000, description="Shell command.")]
    timeout_s: Annotated[float | None, Field(gt=0, description="Seconds; default 120, at most 600.")] = None
    background: Annotated[bool, Field(description="Return at once and let it run, e.g. a server.")] = False


class BashOutputArgs(ToolArgs):
    """Arguments of ``bash_output``."""

    shell_id: Annotated[str, Field(description="As bash returned it.")]
    wait_s: Annotated[float, Field(ge=0, description="Seconds to wait for its end; at most 60.")] = 0


class KillShellArgs(ToolArgs):
    """Arguments of ``kill_shell``."""

    shell_id: Annotated[str, Field(description="As bash returned it.")]


_NEW_SHELLS = "Each call is a new shell: directory changes and variables do not last. "
_ONE_SHELL = (
    "The first call begins in the project folder; directory changes, variables and functions last until the "
    "session ends, but jobs do not. A call that is killed leaves them as they were before it. "
)


def tools(*, persistent: bool = False) -> list[ToolSpec]:
    """Return the tools of this module; ``persistent``: the calls of ``bash`` share a shell."""
    return [
        tool_spec(
            "bash",
            "Run a shell command in the project folder; returns its output (stdout and stderr together) and "
            "exit code. Use it to build, test, run programs and use git; prefer the file tools to read, "
            f"search and edit files. {_ONE_SHELL if persistent else _NEW_SHELLS}"
            "No input can be typed. Writing outside the project and the network are usually blocked. At the "
            "timeout the command and its children are killed; for servers and long work set background "
            "and read them with bash_output. Long output is cut in the middle; read_output has the whole.",
            BashArgs,
            {SideEffect.EXECUTE},
            run_bash,
            summary="Run a shell command.",
            aliases={
                "timeout": "timeout_s",
                "cmd": "command",
                "run_in_background": "background",
                "script": "command",
            },
        ),
        tool_spec(
            "bash_output",
            "Show what a background command has written so far, and whether it still runs or how it ended. "
            "Use it after bash with background. Takes the shell_id that bash returned; wait_s waits for the "
            "end. Returns the output, cut in the middle when long.",
            BashOutputArgs,
            {SideEffect.READ},
            show_output,
            summary="Show a background command's output.",
            aliases={"bash_id": "shell_id", "id": "shell_id"},
        ),
        tool_spec(
            "kill_shell",
            "End a background command and all its children. Use it when a server or a long command is no "
            "longer needed. Takes the shell_id that bash returned; returns the last output. Whatever is not "
            "gone within a second is killed.",
            KillShellArgs,
            {SideEffect.EXECUTE},
            end_shell,
            summary="End a background command.",
            aliases={"bash_id": "shell_id", "id": "shell_id"},
        ),
    ]


def shell_program() -> str:
    """Return bash where there is one, else sh."""
    return shutil.which("bash") or shutil.which("sh") or "/bin/sh"


async def run_bash(args: BashArgs, context: ToolContext) -> ToolOutcome:
    """Handle ``bash``."""
    if "\0" in args.command:
        raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, "The command holds a NUL character; leave it out.")
    line = _line(args.command, context)
    if args.background:
        return await _start_background(line, context)
    timeout = min(args.timeout_s or _default_timeout(context), MAX_TIMEOUT_S)
    reference, spool = context.outputs.new_file(context.call_id)
    kept = False
    try:
        result = await _run(_request(line, context, timeout_s=timeout, spool=spool), context)
        if not isinstance(result, SpawnResult):
            return _sent_back(result, context)
        note = line.ended(result)
        text = plain_text(result.output)
        cut = result.truncated or len(text) > context.max_output_chars
        kept = cut
        if cut and not result.truncated:
            # It passed the limit of what is shown, but not that of the spool.
            reference = context.outputs.keep(context.call_id, text)
    except BaseException:
        line.dropped()
        raise
    finally:
        if not kept:
            spool.unlink(missing_ok=True)
    hint = f"; read_output has the whole under {reference}" if cut else ""
    return ToolOutcome(
        output=_report(shorten(text, context.max_output_chars, hint), result, timeout, note),
        is_error=result.timed_out,
        category=ToolCategory.TIMEOUT if result.timed_out else None,
        exit_code=result.exit_code,
        truncated=cut,
        output_ref=reference if cut else None,
        sandbox=result.wall,
        would_allow=_would_allow(result),
    )


async def show_output(args: BashOutputArgs, context: ToolContext) -> ToolOutcome:
    """Handle ``bash_output``."""
    process = _find(args.shell_id, context)
    await process.ended_within(min(args.wait_s, MAX_WAIT_S))
    return await _background_outcome(args.shell_id, process, context)


async def end_shell(args: KillShellArgs, context: ToolContext) -> ToolOutcome:
    """Handle ``kill_shell``."""
    process = _find(args.shell_id, context)
    was_running = process.running
    await process.kill()
    outcome = await _background_outcome(args.shell_id, process, context)
    context.background.pop(args.shell_id, None)
    prefix = f"{args.shell_id} killed." if was_running else f"{args.shell_id} had ended already."
    return ToolOutcome(f"{prefix}\n{outcome.output}", exit_code=outcome.exit_code, sandbox=outcome.sandbox)


@dataclass(frozen=True, slots=True)
class _NewShell:
    """A command in a shell of its own."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    def ended(self, result: SpawnResult) -> str:
        """Say nothing: there is no next command."""
        return ""

    def dropped(self) -> None:
        """Do nothing."""


def _line(command: str, context: ToolContext) -> ShellLine:
    """Return how a command is run: as a new shell, or with what the commands before it left."""
    if context.shell is None:
        return _NewShell((shell_program(), "-c", command), {})
    # What an earlier command defined must not run with rights that were given to the words of this one.
    alone = bool(context.writable) or context.by_words or context.read_only
    return context.shell.line(command, clean=alone)


def _request(
    line: ShellLine, context: ToolContext, *, timeout_s: float | None = None, spool: Path | None = None
) -> SpawnRequest:
    return SpawnRequest(
        line.argv,
        context.workspace,
        env=line.env,
        timeout_s=timeout_s,
        writable=context.writable,
        read_only=context.read_only,
        max_output=max(4 * context.max_output_chars, 100_000),
        spool=spool,
    )


async def _run(request: SpawnRequest, context: ToolContext) -> SpawnResult | Process:
    """Return how a command ended, or its process where the user sent it to the background."""
    progress = _Progress(context.progress)
    if context.foreground is None:
        return await _started(context.spawner.run(request, progress))
    with context.foreground.waiting(context.call_id) as sent_back:
        result = await _started(run_unless_sent_back(context.spawner, request, progress, sent_back))
    progress.end()
    return result


def _sent_back(process: Process, context: ToolContext) -> ToolOutcome:
    shell_id = _keep(process, context)
    text = shorten(plain_text(process.output()), context.max_output_chars, "").rstrip("\n")
    return ToolOutcome(
        f"{text or '(no output yet)'}\nThe user sent this command to the background, where it goes on as "
        f"{shell_id}. Read it with bash_output, end it with kill_shell.",
        sandbox=context.spawner.wall,
    )


def _keep(process: Process, context: ToolContext) -> str:
    """Keep a background process; return its shell id."""
    number = 1
    while f"shell_{number}" in context.background:
        number += 1
    shell_id = f"shell_{number}"
    context.background[shell_id] = process
    return shell_id


async def _start_background(line: ShellLine, context: ToolContext) -> ToolOutcome:
    running = [name for name, process in context.background.items() if process.running]
    if len(running) >= MAX_BACKGROUND:
        raise ToolFailure(
            ToolCategory.BLOCKED,
            f"{len(running)} background commands run already; end one with kill_shell: {', '.join(running)}.",
        )
    process = await _started(context.spawner.start(_request(line, context)))
    shell_id = _keep(process, context)
    return ToolOutcome(
        f"Started in the background as {shell_id}. Read it with bash_output, end it with kill_shell.",
        sandbox=context.spawner.wall,
    )


async def _background_outcome(shell_id: str, process: Process, context: ToolContext) -> ToolOutcome:
    text = plain_text(process.output())
    limit = context.max_output_chars
    reference = context.outputs.keep(context.call_id, text) if len(text) > limit else None
    shown = shorten(text, limit, f"; read_output has the rest under {reference}")
    if process.running:
        state, code, wall, rules = f"{shell_id} is still running.", None, None, ()
    else:
        result = await process.wait()
        code, wall, rules = result.exit_code, result.wall, _would_allow(result)
        state = f"{shell_id} has ended, exit code: {code}"
    body = shown.rstrip("\n") or "(no output yet)"
    return ToolOutcome(
        f"{body}\n{state}",
        exit_code=code,
        truncated=reference is not None,
        output_ref=reference,
        sandbox=wall,
        would_allow=rules,
    )


def _find(shell_id: str, context: ToolContext) -> Process:
    process = context.background.get(shell_id)
    if process is None:
        known = ", ".join(context.background) or "none; start one with bash and background"
        raise ToolFailure(
            ToolCategory.NOT_FOUND, f"No background command is called {shell_id!r}. There are: {known}."
        )
    return process


def _default_timeout(context: ToolContext) -> float:
    value = context.settings.get("bash.timeout")
    return float(value) if isinstance(value, int | float) and value > 0 else DEFAULT_TIMEOUT_S


def _would_allow(result: SpawnResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.rule for item in result.blocked if item.rule is not None))


def _report(text: str, result: SpawnResult, timeout: float, note: str) -> str:
    """Return output and end of a command as the model sees them, and what there is to say of its shell."""
    ending = _ending(text.rstrip("\n"), result, timeout)
    return f"{ending}\n[{note.rstrip()}]" if note else ending


def _ending(body: str, result: SpawnResult, timeout: float) -> str:
    if result.timed_out:
        message = (
            f"the command was killed after {timeout:g} s, with all its children. Give a larger timeout_s (at "
            f"most {MAX_TIMEOUT_S:g}), or set background to true and read it with bash_output. "
        )
        message += f"Its output until then:\n{body}" if body else "It had written nothing."
        return tool_error_text(ToolCategory.TIMEOUT, message)
    code = result.exit_code
    if code == 0:
        return body or "(no output)"
    if code is None:
        ending = "The command was killed, its exit code is unknown."
    elif code < 0:
        ending = f"exit code: {128 - code} (killed by signal {-code})"
    else:
        ending = f"exit code: {code}"
    return f"{body}\n{ending}" if body else ending


async def _started(work: Awaitable[_T]) -> _T:
    """Await the start of a shell, with its errors in words for the model."""
    try:
        return await work
    except SandboxError as error:
        raise ToolFailure(ToolCategory.SANDBOX, str(error)) from error
    except OSError as error:
        raise ToolFailure(
            ToolCategory.EXCEPTION, f"The shell could not be started: {error.strerror}: {error.filename}."
        ) from error


class _Progress:
    """Hands on output at most ten times a second, as plain text; what came between goes with the next."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._pending = bytearray()
        self._last = 0.0
        self._ended = False

    def end(self) -> None:
        """Show nothing more: the call has its result."""
        self._ended = True

    def __call__(self, data: bytes) -> None:
        if self._ended:
            return
        self._pending += data[-_PROGRESS_BYTES:]
        del self._pending[:-_PROGRESS_BYTES]
        now = time.monotonic()
        if now - self._last < _PROGRESS_EVERY_S:
            return
        self._last = now
        text = plain_text(bytes(self._pending))
        self._pending.clear()
        if text:
            self._show(text)
