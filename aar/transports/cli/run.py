"""``aar run``: one task, the answer on standard output, an exit code that tells how it went (DESIGN 9)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aar.protocol.errors import UsageError
from aar.protocol.state import ExitCode
from aar.transports.cli.failures import Interrupted, failure
from aar.transports.cli.options import POSITIVE, runtime_options, take_runtime_options
from aar.transports.cli.prompt_input import read_images, read_prompt
from aar.transports.cli.run_options import RunOptions, check
from aar.transports.cli.show import Show
from aar.transports.cli.signals import Signals, interruptible

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult
    from aar.core.session import Session
    from aar.protocol.messages import ContentBlock
    from aar.runtime import Runtime


class RunCommand(click.Command):
    """Tells a wrong command line in the form that ``--output`` asked for, as every other failure."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line."""
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            output = _wanted_output(given)
            if output == "text":
                raise
            message = f"{error.format_message()} (`aar run --help`)"
            raise click.exceptions.Exit(report_failure(Show(output), UsageError(message))) from error


def _wanted_output(args: list[str]) -> str:
    for flag, value in zip(args, [*args[1:], ""], strict=True):
        asked = value if flag == "--output" else flag.removeprefix("--output=")
        if asked in ("json", "stream-json") and flag != asked:
            return asked
    return "text"


@click.command(cls=RunCommand)
@click.argument("prompt", required=False)
@runtime_options
@click.option("--continue", "continue_", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("--session", "session_id", metavar="ID", help="Go on with this session.")
@click.option("--fork", "fork_id", metavar="ID", help="Go on with a copy of this session.")
@click.option(
    "--at",
    "fork_at",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="With --fork: copy up to this event only.",
)
@click.option(
    "--if-open",
    type=click.Choice(["refuse", "fork"]),
    default="refuse",
    show_default=True,
    help="What to do when another aar has the session open.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What is written.",
)
@click.option(
    "--input",
    "input_",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="What standard input is: the task, or JSON lines of a program that drives the session.",
)
@click.option(
    "--output-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The answer must be one JSON document of the JSON Schema in FILE.",
)
@click.option(
    "--output-last-message",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the answer to FILE.",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Model requests at most.")
@click.option("--max-cost", type=POSITIVE, metavar="USD", help="US dollars at most.")
@click.option(
    "--timeout",
    type=POSITIVE,
    metavar="SECONDS",
    help="Wall-clock seconds at most.",
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
@click.option(
    "--approve-with",
    metavar="CMD",
    help="Let a program answer questions: JSON on its standard input and output.",
)
@click.option("--title", help="Title of the session.")
@click.option("--no-session", is_flag=True, help="Keep nothing on disk.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing but the answer and errors.")
def run(**values: Any) -> int:
    """Do one task and print the answer.

    PROMPT is the task; standard input is read when it is '-', absent, or beside it when input is piped in.
    """
    interruptible()
    options = RunOptions(take_runtime_options(values), **values)
    show = Show(options.output, quiet=options.quiet)
    try:
        check(options)
        prompt = read_prompt(options.prompt) if options.input_ == "text" else options.prompt
        return asyncio.run(_run(options, prompt, show))
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        return report_failure(show, error)


async def _run(options: RunOptions, prompt: str | None, show: Show) -> int:
    from aar.runtime import open_runtime

    with Signals(show.clear) as signals:
        content = _content(options.images, prompt)
        which: dict[str, Any] = {
            "continue_latest": options.continue_,
            "session_id": options.session_id,
            "fork_id": options.fork_id,
        }
        runtime = open_runtime(**_runtime_arguments(options), goes_on=which)
        try:
            session = runtime.open_session(
                **which,
                title=options.title,
                fork_at=options.fork_at,
                fork_if_open=options.if_open == "fork",
            )
            try:
                return await _drive(options, runtime, session, content, show, signals)
            finally:
                signals.cancels(lambda: None)
                await session.aclose()
                _forget_unused(runtime, session)
                if session.lost is not None:
                    # The last thing that is told: nobody watches any more.
                    show.note(session.lost)
        finally:
            signals.cancels(lambda: None)
            await runtime.aclose()


def _forget_unused(runtime: Runtime, session: Session) -> None:
    """Remove a session in which nothing happened: there is nothing to go on with."""
    from contextlib import suppress

    from aar.memory.session_store import SessionStore
    from aar.protocol.errors import AarError

    if session.last_seq <= 1 and isinstance(runtime.store, SessionStore):
        with suppress(AarError):
            runtime.store.delete(session.session_id)


def _runtime_arguments(options: RunOptions) -> dict[str, Any]:
    flags = {
        "limits.steps": options.max_steps,
        "limits.usd": options.max_cost,
        "limits.seconds": options.timeout,
        "session.store": False if options.no_session else None,
        "verify.commands": list(options.verify) or None,
    }
    return {
        **options.runtime,
        "flags": flags,
        "system_prompt": options.system_prompt,
        "interactive": False,
        "approve_with": options.approve_with,
        "driven": options.input_ == "stream-json",
    }


def _content(images: tuple[Path, ...], prompt: str | None) -> list[ContentBlock] | None:
    """Return the first prompt; ``None``: standard input brings it."""
    from aar.protocol.messages import TextBlock

    blocks = read_images(images)
    return None if prompt is None else [*blocks, TextBlock(text=prompt)]


async def _drive(
    options: RunOptions,
    runtime: Runtime,
    session: Session,
    content: list[ContentBlock] | None,
    show: Show,
    signals: Signals,
) -> int:
    if content is not None and runtime.extras.counsel.routing:
        await _route(runtime, session, content)
    agent: Agent = runtime.agent(session)
    earlier = runtime.opening_events(session)
    notices = list(runtime.notices)

    async def work(prompt: Sequence[Any]) -> RunResult:
        shown, told = list(earlier), list(notices)
        earlier.clear()
        notices.clear()
        async with show.watching(session, shown):
            for text in told:
                session.append(runtime.notice(text))
            return await _answer(options, agent, session, prompt, show)

    if options.input_ == "stream-json":
        return await _serve(options, agent, session, content, show, signals, work)
    assert content is not None
    show.on_lost = agent.cancel
    signals.cancels(agent.cancel)
    result = await work(content)
    signals.cancels(lambda: None)
    fields = _finish(options, result, signals, show)
    show.finish(fields, result)
    return _told(show, fields["exit_code"])


async def _route(runtime: Runtime, session: Session, content: Sequence[ContentBlock]) -> None:
    """Let the router choose who does the task, unless --agent did."""
    from aar.protocol.messages import TextBlock
    from aar.runtime.review import route_prompt

    if runtime.agent_name is not None:
        return
    words = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    agent, model = await route_prompt(runtime, session, words) or (None, None)
    if agent not in (None, "none"):
        runtime.set_agent(agent)
    if model is not None:
        runtime.set_model(model)


def _finish(options: RunOptions, result: RunResult, signals: Signals, show: Show) -> dict[str, Any]:
    """Keep the answer where it is wanted, and return the fields of the result with the final exit code."""
    from aar.transports.cli.printers import result_fields

    code = int(result.exit_code) if signals.ended_by is None else 128 + signals.ended_by
    if options.output_last_message is not None:
        code = _keep_answer(options.output_last_message, result.text, show) or code
    return {**result_fields(result), "exit_code": code}


async def _serve(
    options: RunOptions,
    agent: Agent,
    session: Session,
    content: list[ContentBlock] | None,
    show: Show,
    signals: Signals,
    work: Callable[[Sequence[Any]], Awaitable[RunResult]],
) -> int:
    """Do what the lines of standard input say; each run ends with a result of its own."""
    from aar.transports.cli.run_input import InputDriver, LineReader

    ended: list[tuple[dict[str, Any], RunResult]] = []
    idle: list[bool] = []

    async def run(prompt: Sequence[Any]) -> RunResult:
        result = await work(prompt)
        ended.append((_finish(options, result, signals, show), result))
        if options.output != "json":
            show.result(*ended[-1])
        return result

    def close() -> None:
        idle.append(not agent.running)
        driver.close()

    driver = InputDriver(agent, session, run, lambda text: show.say(session.session_id, text))
    show.on_lost = driver.close
    signals.cancels(close)
    await driver.drive(LineReader(), content)
    signals.cancels(lambda: None)
    if idle and idle[0]:
        raise KeyboardInterrupt if signals.ended_by is None else Interrupted(signals.ended_by)
    if not ended:
        raise UsageError('No prompt came on standard input; write {"type": "prompt", "content": "…"} lines.')
    fields, result = ended[-1]
    if options.output == "json":
        show.result(fields, result)
    show.close()
    return _told(show, fields["exit_code"])


async def _answer(
    options: RunOptions, agent: Agent, session: Session, content: Sequence[Any], show: Show
) -> RunResult:
    """Run the task; with ``--output-schema`` the answer is checked, and repaired once."""
    if options.output_schema is None:
        return await agent.run(content, session)
    from aar.core.output_schema import load_schema, run_in_limits

    schema = load_schema(options.output_schema)
    result, problems = await run_in_limits(agent, session, content, schema)
    if problems:
        show.note("The answer is not what --output-schema asks for. " + " ".join(problems))
    return result


def _told(show: Show, code: int) -> int:
    """Return the exit code once all is written: an answer that could not be written is a failure."""
    lost = show.lost
    if lost is None or isinstance(lost, BrokenPipeError):
        return code
    show.note(f"The answer cannot be written to standard output: {lost.strerror or lost}.")
    return code or ExitCode.INTERNAL


def _keep_answer(path: Path, text: str, show: Show) -> int:
    """Write the answer to ``path``, whole or not at all; return an exit code other than 0 when it fails."""
    try:
        target = path.resolve()
        if path.is_relative_to("/dev") or (target.exists() and not target.is_file()):
            # A pipe or device, such as >(command) of a shell: it cannot be replaced.
            with path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            return ExitCode.OK
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        show.note(f"--output-last-message {path} cannot be written: {error.strerror or error}.")
        return ExitCode.INTERNAL
    return ExitCode.OK


def report_failure(show: Show, error: BaseException) -> int:
    """Tell a run that could not start in the form that was asked for."""
    from aar.transports.cli.printers import failure_fields

    failed = failure(error)
    show.note(failed.message)
    show.finish(failure_fields(failed), None)
    return failed.code
