"""``aar run``: one task, the answer on standard output, an exit code that tells how it went (DESIGN 9)."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aar.protocol.errors import AarError, UsageError, error_kind
from aar.protocol.state import ExitCode
from aar.transports.cli.options import runtime_options, take_runtime_options

_FIRST_BYTE_S = 3.0
_MAX_STDIN = 50_000_000
_IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


@click.command()
@click.argument("prompt", required=False)
@runtime_options
@click.option("--continue", "continue_", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("--session", "session_id", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_id", metavar="ID", help="Go on with a copy of this session.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What is written.",
)
@click.option(
    "--output-last-message",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the answer to FILE.",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Model requests at most.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="US dollars at most.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wall-clock seconds at most."
)
@click.option("--verify", "verify", multiple=True, metavar="CMD", help="Go on until CMD passes.")
@click.option(
    "--image", "images", multiple=True, type=click.Path(path_type=Path), help="Show an image to the model."
)
@click.option(
    "--system-prompt",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use FILE instead of the built-in instructions.",
)
@click.option("--title", help="Title of the session.")
@click.option("--no-session", is_flag=True, help="Keep nothing on disk.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing but the answer and errors.")
def run(**values: Any) -> int:
    """Do one task and print the answer.

    PROMPT is the task; standard input is read when it is '-', absent, or beside it when input is piped in.
    """
    options = RunOptions(take_runtime_options(values), **values)
    try:
        prompt = read_prompt(options.prompt)
        return asyncio.run(_run(options, prompt))
    except AarError as error:
        _report_failure(options, error)
        return error.exit_code


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The flags of ``aar run``; ``runtime`` holds those that all commands share."""

    runtime: dict[str, Any]
    prompt: str | None
    continue_: bool
    session_id: str | None
    fork_id: str | None
    output: str
    output_last_message: Path | None
    max_steps: int | None
    max_cost: float | None
    timeout: float | None
    verify: tuple[str, ...]
    images: tuple[Path, ...]
    system_prompt: Path | None
    title: str | None
    no_session: bool
    quiet: bool


def read_prompt(argument: str | None) -> str:
    """Return the prompt: the argument, standard input, or both.

    Raises:
        UsageError: There is none.
    """
    if argument is None or argument == "-":
        if argument is None and sys.stdin is not None and sys.stdin.isatty():
            raise UsageError('There is no task. Say what to do: aar run "fix the failing test".')
        text = _read_stdin()
    else:
        piped = _read_stdin() if _stdin_is_piped() else ""
        text = f"{argument}\n\n{piped}" if piped.strip() else argument
    if not text.strip():
        raise UsageError('The task is empty. Say what to do: aar run "fix the failing test".')
    return text


def _read_stdin() -> str:
    if sys.stdin is None:
        return ""
    data = sys.stdin.buffer.read(_MAX_STDIN + 1)
    if len(data) > _MAX_STDIN:
        raise UsageError(
            f"Standard input is longer than {_MAX_STDIN:,} bytes; put it into a file and name that."
        )
    return data.decode("utf-8", "replace")


def _stdin_is_piped() -> bool:
    """Tell whether standard input is a file, or a pipe into which somebody writes."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    if stat.S_ISREG(mode):
        return True
    if not stat.S_ISFIFO(mode):
        return False
    # A parent that forgot to close its pipe must not hang the run for ever.
    ready = bool(select.select([descriptor], [], [], _FIRST_BYTE_S)[0])
    if not ready:
        sys.stderr.write("aar: Nothing came on standard input; going on without it.\n")
    return ready


async def _run(options: RunOptions, prompt: str) -> int:
    from aar.protocol.messages import ContentBlock, TextBlock
    from aar.runtime import open_runtime

    content: list[ContentBlock] = [*_load_images(options.images), TextBlock(text=prompt)]
    runtime = open_runtime(**_runtime_arguments(options))
    try:
        session = runtime.open_session(
            continue_latest=options.continue_,
            session_id=options.session_id,
            fork_id=options.fork_id,
            title=options.title,
        )
        try:
            return await _drive(options, runtime, session, content)
        finally:
            session.close()
    finally:
        await runtime.aclose()


def _runtime_arguments(options: RunOptions) -> dict[str, Any]:
    flags = {
        "limits.steps": options.max_steps,
        "limits.usd": options.max_cost,
        "limits.seconds": options.timeout,
        "session.store": False if options.no_session else None,
        "verify.commands": list(options.verify) or None,
    }
    return {**options.runtime, "flags": flags, "system_prompt": options.system_prompt, "interactive": False}


def _load_images(paths: tuple[Path, ...]) -> list[Any]:
    import base64

    from aar.protocol.messages import ImageBlock

    blocks: list[Any] = []
    for path in paths:
        media_type = _IMAGE_TYPES.get(path.suffix.lower())
        if media_type is None:
            raise UsageError(f"--image {path}: give a png, jpeg, gif or webp file.")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"--image {path} cannot be read: {error.strerror}.") from error
        blocks.append(ImageBlock(media_type=media_type, data=base64.b64encode(data).decode(), name=path.name))
    return blocks


async def _drive(options: RunOptions, runtime: Any, session: Any, content: list[Any]) -> int:
    from aar.transports.cli.printers import result_fields
    from aar.transports.cli.show import Show

    agent = runtime.agent(session)
    show = Show(options.output, quiet=options.quiet)
    signals = _Signals(agent.cancel)
    async with show.watching(session):
        for text in runtime.notices:
            session.append(runtime.notice(text))
        with signals:
            result = await agent.run(content, session)
    show.finish(result_fields(result), result)
    if options.output_last_message is not None:
        _write_atomically(options.output_last_message, result.text)
    if signals.terminated:
        return ExitCode.TERMINATED
    return result.exit_code


class _Signals:
    """The first Ctrl-C cancels cleanly, the second leaves at once; SIGTERM is a clean end too."""

    def __init__(self, cancel: Any) -> None:
        self._cancel = cancel
        self._interrupts = 0
        self.terminated = False

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._terminate)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            # Everything that was shown is on disk already; children die with this process.
            os._exit(ExitCode.CANCELLED)
        self._cancel()

    def _terminate(self) -> None:
        self.terminated = True
        self._cancel()


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"--output-last-message {path} cannot be written: {error.strerror}.") from error


def _report_failure(options: RunOptions, error: AarError) -> None:
    """Tell a run that could not start in the form that was asked for."""
    from aar.transports.cli.printers import failure_fields
    from aar.transports.cli.show import Show

    fields = failure_fields(str(error_kind(error)), str(error), int(error.exit_code))
    show = Show(options.output, quiet=options.quiet)
    show.fail(str(error))
    show.finish(fields, None)
