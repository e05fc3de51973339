"""The ``aar`` command: a click group whose commands are imported when they are called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from aar.transports.cli import streams
from aar.transports.cli.groups import NearestGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETING = "_AAR_COMPLETE"
"""Variable that a shell's completion sets; the name is click's."""
_COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Do one task and print the answer."),
    "tui": ("tui:tui", "Work with the assistant on the full screen."),
    "chat": ("chat:chat", "Talk with the assistant line by line."),
    "acp": ("acp:acp", "Serve an editor over standard input and output."),
    "serve": ("serve:serve", "Serve sessions, a web page and model APIs over HTTP."),
    "sessions": ("sessions:sessions", "List, find, show, copy, export, replay and delete sessions."),
    "batch": ("batch:batch", "Do many tasks, each in a work tree of its own."),
    "schedule": ("schedule:schedule", "Run tasks at certain times."),
    "plan": ("plan:plan", "List, show, edit, export and run plans."),
    "undo": ("undo:undo", "Take back what the last steps did."),
    "redo": ("undo:redo", "Take the last undo back."),
    "checkpoints": ("undo:checkpoints", "List, show and restore kept states of the files."),
    "config": ("config:config", "Show, read and change settings."),
    "auth": ("auth:auth", "Keep, list and forget keys of model servers."),
    "models": ("models:models", "List models, and fetch the embedded one."),
    "tools": ("tools:tools", "List the tools that the model gets."),
    "mcp": ("mcp:mcp", "List, add and try MCP servers, or serve aar as one."),
    "agents": ("agents:agents", "List and show agents."),
    "skills": ("skills:skills", "List and show skills."),
    "memory": ("memory:memory", "Keep, find and check notes for later sessions."),
    "extensions": ("extensions:extensions", "List, inspect, check and begin Python extensions."),
    "prompt": ("prompt:prompt", "Show the system prompt."),
    "trust": ("trust:trust", "Let this folder's own config, rules and hooks act."),
    "trace": ("trace:trace", "Show what a session did: times, tokens and money."),
    "audit": ("audit:audit", "Check that no session was changed afterwards."),
    "policy": ("policy:policy", "Tell what may run, and why."),
    "sandbox": ("sandbox:sandbox", "Show the wall around commands, or run a command in it."),
    "stats": ("stats:stats", "Show tokens, money and time by day, model or project."),
    "init": ("init:init", "Write a commented config file, and draft an AGENTS.md."),
    "doctor": ("doctor:doctor", "Check this installation."),
    "logs": ("logs:logs", "Show the diagnostics log."),
    "completion": ("completion:completion", "Print what a shell needs to complete commands."),
}
"""Name of a command: module below this package and attribute, and the line of help."""


class LazyGroup(NearestGroup):
    """Knows its commands by name, and imports the module of a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, the main job first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, attribute = entry[0].split(":")
        command: click.Command = getattr(importlib.import_module(f"aar.transports.cli.{module}"), attribute)
        if COMPLETING in os.environ:
            from aar.transports.cli.completion import attach

            attach(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands without importing any of them."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        from aar import __version__

        click.echo(f"aar {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A coding assistant for the terminal.

    `aar run "fix the failing test"` does one task in this folder.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_cli(argv: list[str]) -> int:
    """Run the command line ``argv`` and return its exit code; errors become one sentence on stderr."""
    streams.secure_streams()
    if COMPLETING in os.environ:
        from aar.transports.cli.completion import answer_quickly

        if answer_quickly():
            return 0
    if "--json" in argv or argv[:2] in (["policy", "check"], ["config", "get"]):
        streams.machine_output()
    code = _guarded(argv)
    # What is still buffered is written here, where a failure can be told.
    lost = streams.write(sys.stdout, "")
    if lost is not None and not isinstance(lost, BrokenPipeError):
        return code or _fail(f"Standard output cannot be written: {lost.strerror or lost}.", 7)
    return code


def _guarded(argv: list[str]) -> int:
    try:
        result: Any = cli.main(args=argv, prog_name="aar", standalone_mode=False)
        return int(result) if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        streams.write(sys.stderr, error.format_message() + "\n")
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "aar"
        return _fail(f"{_plain(error.format_message())} (`{command} --help`)", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    except BrokenPipeError:
        streams.silence(sys.stdout)
        return 0
    except BaseException as error:  # also those of signals
        return _explained(error)


def _plain(message: str) -> str:
    """Return a message of the parser without its names of types."""
    for theirs, plain in (("valid float range", "number"), ("valid integer range", "whole number")):
        message = message.replace(f"is not a {theirs}", f"is not a {plain}")
    return message


def _explained(error: BaseException) -> int:
    from aar.transports.cli.failures import failure

    if isinstance(error, OSError) and error.filename is None and error.errno == errno.ENOSPC:
        streams.silence(sys.stdout)
        return _fail("The output cannot be written: the disk is full.", 7)
    failed = failure(error)
    return _fail(failed.message, failed.code)


def _fail(message: str, code: int) -> int:
    from aar.safety.sanitize import sanitize

    streams.write(sys.stderr, f"aar: {sanitize(message)}\n")
    return code
