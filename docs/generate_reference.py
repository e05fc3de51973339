"""Write ``docs/reference.md`` and a table in ``docs/ci.md`` from the code and ``docs/contract.toml``.

``python docs/generate_reference.py`` prints the page; with ``--write`` it replaces the page and the table.
"""

from __future__ import annotations

import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from aar.protocol import events
from aar.protocol.state import ExitCode, StopReason, exit_code
from aar.providers.presets import PRESETS
from aar.transports.cli.main import cli
from aar.transports.cli.run_input import LINES

HERE = Path(__file__).resolve().parent
PAGE = HERE / "reference.md"
CI = HERE / "ci.md"
BEGIN = "<!-- lines: python docs/generate_reference.py --write -->"
END = "<!-- end of lines -->"
CONTRACT = tomllib.loads((HERE / "contract.toml").read_text(encoding="utf-8"))

_INTRO = """\
This page is made from the code (`python docs/generate_reference.py --write`); a test compares.
Settings are in [configuration](configuration.md#all-keys), slash commands in [commands](commands.md), keys in
[keyboard](keyboard.md).

[Exit codes](#exit-codes) · [commands](#commands) · [events](#events) ·
[environment variables](#environment-variables) · [checked command lines](#checked-command-lines)"""
_CODES = {
    ExitCode.OK: "done",
    ExitCode.UNFINISHED: "the model gave up, or a check of `--verify` or `--output-schema` still fails",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CONFIGURATION: "configuration, session or trust: no request was sent",
    ExitCode.PROVIDER: "the model's server failed or refused, or the key is wrong",
    ExitCode.LIMIT: "a limit on steps, time or money was reached",
    ExitCode.DENIED: "a call was not allowed and nobody could be asked",
    ExitCode.INTERNAL: "aar failed inside, or the answer could not be written",
    ExitCode.CANCELLED: "Ctrl-C, a `cancel` line, or the reader of a stream went away",
    ExitCode.TERMINATED: "SIGTERM (129 for SIGHUP)",
}
ENVIRONMENT = {
    "AAR_HOME": "Folder of all of aar's files: data there, `config/` and `cache/` below it.",
    "AAR_SECTION__KEY": "Any setting, see [configuration](configuration.md#environment-and-flags).",
    "XDG_DATA_HOME": "Where data lie without `AAR_HOME`: `$XDG_DATA_HOME/aar`.",
    "XDG_CONFIG_HOME": "Where `config.toml` lies without `AAR_HOME`.",
    "XDG_CACHE_HOME": "Where the cache lies without `AAR_HOME`.",
    "XDG_RUNTIME_DIR": "Where sockets and locks of running processes lie.",
    "HOME": "Your home folder, below which the platform's folders are, and what commands may not read.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Where `aar trace --otel` sends spans; other `OTEL_` variables count too.",
    "PATH": "Where programs are found (git, rg, bwrap, servers, commands).",
    "TMPDIR": "Folder for temporary files.",
    "TZ": "This machine's time zone, for `aar schedule add` without `--zone`.",
    "NO_COLOR": "No colours, when it is not empty.",
    "CI": "No colours, no spinner, no bars, when it is not empty.",
    "TERM": "`dumb`: plain lines, no spinner.",
    "COLORTERM": "Whether the terminal has 24-bit colours.",
    "COLORFGBG": "Whether its background is light, where it does not answer when asked.",
    "TERM_PROGRAM": "What the terminal can do: links, notifications, the clipboard.",
    "COLUMNS": "Width of the terminal; wins over what it says itself.",
    "TMUX": "Escape sequences are wrapped for tmux.",
    "STY": "The same for screen.",
    "DISPLAY": "Whether there is a clipboard of X11.",
    "WAYLAND_DISPLAY": "Whether there is one of Wayland.",
    "SSH_TTY": "The clipboard is reached through the terminal.",
    "SSH_CONNECTION": "The same.",
    "VISUAL": "Editor that Ctrl+G opens.",
    "EDITOR": "The same, when `VISUAL` is not set.",
    "HTTPS_PROXY": "Proxy for model servers; also `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`.",
    "SSL_CERT_FILE": "CA certificates in place of the system's; also `SSL_CERT_DIR`.",
    "GOOGLE_CLOUD_PROJECT": "Project for Vertex AI.",
    "GOOGLE_CLOUD_LOCATION": "Region for Vertex AI.",
    "GOOGLE_GENAI_USE_VERTEXAI": "Gemini through Vertex AI.",
    "CLOUD_ML_REGION": "Region for Claude on Vertex AI.",
    "ANTHROPIC_VERTEX_PROJECT_ID": "Project for Claude on Vertex AI.",
    "ANTHROPIC_CUSTOM_HEADERS": "Taken out of requests: headers stand in the config.",
    "AWS_REGION": "Region for Claude on Amazon Bedrock.",
    "AWS_DEFAULT_REGION": "The same, when `AWS_REGION` is not set.",
    "AWS_BEARER_TOKEN_BEDROCK": "Key for Amazon Bedrock.",
}
"""Variables that aar reads, besides the keys of vendors."""


def commands(
    group: click.Group = cli, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the words of each command that does something, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = (*prefix, name)
        if isinstance(command, click.Group):
            yield from commands(command, words)
        else:
            yield words, command


def flags(command: click.Command) -> list[str]:
    """Return all spellings of a command's options."""
    return [
        name
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
        for name in [*param.opts, *param.secondary_opts]
    ]


def page() -> str:
    """Return the whole page."""
    parts = [
        "# Reference",
        _INTRO,
        _exit_codes(),
        _commands(),
        _events(),
        _environment(),
        _contract(),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;").split())


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _exit_codes() -> str:
    reasons: dict[ExitCode, list[str]] = {code: [] for code in ExitCode}
    for reason in StopReason:
        reasons[exit_code(reason)].append(f"`{reason}`")
    reasons[ExitCode.CONFIGURATION] = reasons[ExitCode.INTERNAL] = ["`error`"]
    reasons[ExitCode.TERMINATED] = ["`cancelled`"]
    rows = [(str(int(code)), " ".join(reasons[code]), _CODES[code]) for code in ExitCode]
    return "## Exit codes\n\n" + _table(("code", "stop reason", "meaning"), rows)


def _commands() -> str:
    parts = ["## Commands"]
    for words, command in commands():
        context = click.Context(command, info_name=" ".join(("aar", *words)))
        usage = " ".join((*("aar", *words), *command.collect_usage_pieces(context)))
        rows = [
            (
                _code(", ".join([*param.opts, *param.secondary_opts]) + _metavar(param, context)),
                _cell(param.help or ""),
            )
            for param in command.params
            if isinstance(param, click.Option) and not param.hidden
        ]
        about = _cell((command.help or "").split("\n\n")[0])
        parts += [f"### aar {' '.join(words)}", f"`{usage}`", about]
        if rows:
            parts.append(_table(("option", "meaning"), rows))
    return "\n\n".join(parts)


def _metavar(param: click.Option, context: click.Context) -> str:
    if param.is_flag:
        return ""
    return " " + param.make_metavar(context).strip("[]") if param.metavar is None else f" {param.metavar}"


def _events() -> str:
    base = events.Event.model_fields
    parts = ["## Events", (events.__doc__ or "").split("\n\n")[1].replace("\n", " ").replace("``", "`")]
    rows = [(f"`{name}`", _kind(field.annotation)) for name, field in base.items()]
    parts += ["Every event has:", _table(("field", "type"), rows)]
    for kind, model in sorted(events.EVENT_TYPES.items()):
        own = {name: field for name, field in model.model_fields.items() if name not in base}
        note = "" if model.stored else " Not stored."
        rows = [(f"`{field.alias or name}`", _kind(field.annotation)) for name, field in own.items()]
        parts += [f"### `{kind}`", _cell((model.__doc__ or "").strip().split("\n\n")[0]) + note]
        if rows:
            parts.append(_table(("field", "type"), rows))
    return "\n\n".join(parts)


def _kind(annotation: Any) -> str:
    """Return a type in words."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(args[0])
    if origin is typing.Literal:
        return " ".join(f"`{value}`" for value in args)
    if origin in (tuple, list):
        return f"list of {_kind(args[0])}"
    if origin is dict:
        return "object"
    if args:
        words = dict.fromkeys(_kind(arg) for arg in args if arg is not type(None))
        return " or ".join([*words, *(["null"] if type(None) in args else [])])
    simple = {str: "string", int: "whole number", float: "number", bool: "true or false"}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, str):
        return " ".join(f"`{value}`" for value in annotation)  # type: ignore[attr-defined]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"object ({', '.join(f'`{name}`' for name in annotation.model_fields)})"
    return "any JSON"


def _environment() -> str:
    rows = [(f"`{name}`", meaning) for name, meaning in ENVIRONMENT.items()]
    keys: dict[str, list[str]] = {}
    for preset in PRESETS.values():
        for name in preset.key_names:
            keys.setdefault(name, []).append(f"`{preset.name}`")
    rows += [(f"`{name}`", f"Key for {', '.join(dict.fromkeys(of))}.") for name, of in keys.items()]
    intro = "Empty variables count as not set. A project's `.env` is never read."
    return f"## Environment variables\n\n{intro}\n\n" + _table(("variable", "meaning"), rows)


def _contract() -> str:
    rows = [(_code(row["run"]), str(row["code"]), _cell(row["about"])) for row in CONTRACT["run"]]
    intro = (
        "Each of these is run by the tests, with a scripted model in place of MODEL, a session of it in place"
        " of ID, and small files for SCHEMA, IMAGE and the like."
    )
    return f"## Checked command lines\n\n{intro}\n\n" + _table(
        ("command", "exit code", "what it shows"), rows
    )


def input_lines() -> str:
    """Return the table of what a line of ``--input stream-json`` may be."""
    rows: list[tuple[str, ...]] = []
    for model in LINES:
        kind = typing.get_args(model.model_fields["type"].annotation)[0]
        names = [f"`{name}`" for name in model.model_fields if name != "type"]
        rows.append((f"`{kind}`", " ".join(names), _cell(model.__doc__ or "")))
    return _table(("type", "fields", "meaning"), rows)


def ci_page(text: str) -> str:
    """Return the page on scripts with its table replaced."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n\n{input_lines()}\n\n{text[end:]}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        CI.write_text(ci_page(CI.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(page())
