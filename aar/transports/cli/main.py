"""The ``aar`` command: a click group whose commands are imported when they are called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from aar.protocol.errors import AarError
from aar.protocol.state import ExitCode

_COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Do one task and print the answer."),
    "sessions": ("sessions:sessions", "List, show and delete sessions."),
    "config": ("config:config", "Show, read and change settings."),
    "models": ("models:models", "List models and fetch the embedded one."),
    "tools": ("tools:tools", "List the tools that the model gets."),
    "prompt": ("prompt:prompt", "Show the system prompt."),
    "policy": ("policy:policy", "Tell what may run, and why."),
    "sandbox": ("sandbox:sandbox", "Show the wall around commands, or run a command in it."),
    "doctor": ("doctor:doctor", "Check this installation."),
    "logs": ("logs:logs", "Show the diagnostics log."),
}
"""Name of a command: module below this package and attribute, and the line of help."""


class LazyGroup(click.Group):
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
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else " `aar --help` lists the commands."
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", ctx) from error


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
    try:
        result: Any = cli.main(args=argv, prog_name="aar", standalone_mode=False)
        return int(result) if isinstance(result, int) else ExitCode.OK
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "aar"
        return _fail(f"{error.format_message()} (`{command} --help`)", ExitCode.USAGE)
    except click.Abort:
        return _fail("Cancelled.", ExitCode.CANCELLED)
    except click.ClickException as error:
        return _fail(error.format_message(), ExitCode.USAGE)
    except AarError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("Cancelled.", ExitCode.CANCELLED)
    except BrokenPipeError:
        _silence_stdout()
        return ExitCode.OK
    except Exception as error:
        return _defect(error)


def _fail(message: str, code: ExitCode) -> int:
    from aar.safety.sanitize import sanitize

    sys.stderr.write(f"aar: {sanitize(message)}\n")
    return code


def _defect(error: Exception) -> int:
    import logging

    logging.getLogger("aar").exception("aar failed inside", exc_info=error)
    name = type(error).__name__
    return _fail(
        f"aar failed inside ({name}: {error}). Run again with --debug and see `aar logs` for the details.",
        ExitCode.INTERNAL,
    )


def _silence_stdout() -> None:
    """Keep Python from complaining about a reader that went away (``aar … | head``)."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
