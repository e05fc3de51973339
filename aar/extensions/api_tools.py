"""Tools of extensions: from a typed Python function to a `ToolSpec`, and what the function may use."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import SpawnRequest, ToolContext
from aar.protocol.tool import FileChange, SideEffect, ToolOutcome, ToolSpec
from aar.tools.schema import ToolArgs, tool_spec

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,63}")
_PATH_NAMES = ("path", "file_path")
_T = TypeVar("_T")

Judge = Callable[[str, str], str | None]
"""``judge(what, subject)``: why policy does not let a tool do ``command``, ``read`` or ``write``, if so."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: what it wrote, and its exit code (``None``: it was killed)."""

    output: str
    exit_code: int | None


@dataclass
class CallContext:
    """What a tool of an extension may use; all of it stays within policy and wall.

    Attributes:
        call_id: Of the call.
        workspace: Root of the project.
        read_only: Whether nothing may be written (plan mode).
    """

    call_id: str
    workspace: Path
    read_only: bool
    _context: ToolContext
    _loop: asyncio.AbstractEventLoop
    _effects: frozenset[SideEffect]
    _judge: Judge
    _named: frozenset[Path]
    changes: list[FileChange] = field(default_factory=list[FileChange])

    async def read_text(self, path: str) -> str:
        """Return the text of a file.

        Raises:
            ToolFailure: It may not be read, or there is none.
        """
        self._demand("read", path)
        return await self._outside(self._read(path))

    async def write_text(self, path: str, text: str) -> None:
        """Replace a file's content, or make the file.

        Raises:
            ToolFailure: It may not be written.
        """
        self._need(SideEffect.WRITE, "write files")
        self._demand("write", path)
        await self._outside(self._write(path, text))

    async def run(self, command: str, *, timeout_s: float = 60.0) -> CommandResult:
        """Run a line of shell behind the wall.

        Raises:
            ToolFailure: It may not run.
        """
        self._need(SideEffect.EXECUTE, "run commands")
        self._demand("command", command)
        return await self._outside(self._command(command, timeout_s))

    async def ask(self, question: str, options: Sequence[str] = ()) -> str | None:
        """Ask the user; ``None`` when nobody can answer."""
        return await self._outside(self._asked(question, options))

    def progress(self, text: str) -> None:
        """Show a piece of output while the tool runs."""
        self._loop.call_soon_threadsafe(self._context.progress, text)

    def _need(self, effect: SideEffect, what: str) -> None:
        if self.read_only:
            raise ToolFailure(ToolCategory.BLOCKED, "Nothing may be changed in plan mode.")
        if effect not in self._effects and SideEffect.EXTERNAL not in self._effects:
            raise ToolFailure(
                ToolCategory.BLOCKED, f"This tool did not declare that it may {what}, so it may not."
            )

    def _demand(self, what: str, subject: str) -> None:
        if what != "command" and self._context.files.resolve(subject) in self._named:
            return  # judged with the call
        why = self._judge(what, subject)
        if why is not None:
            raise ToolFailure(ToolCategory.BLOCKED, why)

    async def _outside(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Let aar's own thread do ``work`` and wait for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _read(self, path: str) -> str:
        data = await asyncio.to_thread(self._context.files.read_bytes, path)
        return data.decode("utf-8", "replace")

    async def _write(self, path: str, text: str) -> None:
        from aar.tools.builtin.common import Change, describe_change, label

        files = self._context.files

        def write() -> FileChange:
            before = files.read_bytes(path) if files.exists(path) else None
            files.write_bytes(path, text.encode())
            change, _ = describe_change(
                self._context, Change(label(self._context, path), before, text.encode())
            )
            return change

        self.changes.append(await asyncio.to_thread(write))

    async def _command(self, command: str, timeout_s: float) -> CommandResult:
        request = SpawnRequest(
            ("/bin/sh", "-c", command), self.workspace, timeout_s=timeout_s, read_only=self.read_only
        )
        ended = await self._context.spawner.run(request)
        return CommandResult(ended.output.decode("utf-8", "replace"), ended.exit_code)

    async def _asked(self, question: str, options: Sequence[str]) -> str | None:
        return await self._context.ask(question, options)


RunThere = Callable[[Callable[..., Any], Sequence[Any], float], Coroutine[Any, Any, Any]]
"""``await run(function, arguments, seconds)`` in the thread of the extension."""


@dataclass(frozen=True)
class ToolFunction:
    """A function that is a tool.

    Attributes:
        name: Of the tool.
        function: What does it.
        description: For the model.
        arguments: Model of its arguments.
        side_effects: What it says it may do; `SideEffect.EXTERNAL` where it says nothing.
        timeout_s: Seconds.
        takes_context: Name of the parameter that gets the `CallContext`; empty: none.
    """

    name: str
    function: Callable[..., Any]
    description: str
    arguments: type[BaseModel]
    side_effects: frozenset[SideEffect]
    timeout_s: float
    takes_context: str = ""

    def spec(self, run_there: RunThere, judge: Judge) -> ToolSpec:
        """Return the tool for the registry."""

        async def handler(given: Any, context: ToolContext) -> ToolOutcome:
            values = {name: getattr(given, name) for name in self.arguments.model_fields}
            extra = self._context(values, context, judge)
            if extra is not None:
                values[self.takes_context] = extra
            result = await run_there(lambda: self.function(**values), (), self.timeout_s)
            outcome = outcome_of(result)
            if extra is not None and extra.changes:
                from dataclasses import replace

                outcome = replace(outcome, file_changes=(*outcome.file_changes, *extra.changes))
            return outcome

        concurrency = "parallel" if self.side_effects <= {SideEffect.READ} else "serial"
        summary = self.description.partition("\n")[0][:100]
        return tool_spec(
            self.name,
            self.description,
            self.arguments,
            self.side_effects,
            handler,
            summary=summary,
            timeout_s=self.timeout_s + 1,
            concurrency=concurrency,
        )

    def _context(self, values: Mapping[str, Any], context: ToolContext, judge: Judge) -> CallContext | None:
        if not self.takes_context:
            return None
        named = {values[name] for name in _PATH_NAMES if isinstance(values.get(name), str)}
        return CallContext(
            context.call_id,
            context.workspace,
            context.read_only,
            context,
            asyncio.get_running_loop(),
            self.side_effects,
            judge,
            frozenset(context.files.resolve(path) for path in named),
        )


def outcome_of(result: Any) -> ToolOutcome:
    """Return what a function gave back as an outcome: text as it is, other values as JSON."""
    if isinstance(result, ToolOutcome):
        return result
    if isinstance(result, str):
        return ToolOutcome(result)
    if result is None:
        return ToolOutcome("Done.")
    if isinstance(result, BaseModel):
        return ToolOutcome(result.model_dump_json(indent=1))
    return ToolOutcome(json.dumps(result, ensure_ascii=False, indent=1, default=str))


def tool_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    side_effects: Iterable[SideEffect | str] | None = None,
    timeout_s: float = 60.0,
) -> ToolFunction:
    """Return the tool that ``function`` is; the schema comes from its type hints.

    Raises:
        ValueError: A name, hint or description is missing or wrong.
    """
    tool = name or getattr(function, "__name__", "")
    if not _NAME.fullmatch(tool):
        raise ValueError(f"{tool!r} is no name of a tool; use letters, digits and '_'")
    text = inspect.cleandoc(description or function.__doc__ or "").strip()
    if not text:
        raise ValueError(f"the tool {tool} needs a docstring: the model chooses it by that")
    if not 0 < timeout_s <= 3600:
        raise ValueError(f"the tool {tool} has timeout_s {timeout_s}; it must be seconds up to 3600")
    try:
        effects = (
            frozenset(SideEffect(effect) for effect in side_effects)
            if side_effects is not None
            else frozenset({SideEffect.EXTERNAL})
        )
    except ValueError:
        raise ValueError(f"the side effects of {tool} may be {', '.join(SideEffect)}") from None
    arguments, context = _arguments(tool, function)
    return ToolFunction(tool, function, text, arguments, effects, timeout_s, context)


def _arguments(tool: str, function: Callable[..., Any]) -> tuple[type[BaseModel], str]:
    """Return the model of a function's parameters, and which of them gets the `CallContext`."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ValueError(f"the type hints of the tool {tool} cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    context = ""
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is CallContext:
            context = parameter.name
            continue
        if hint is None or parameter.kind not in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            raise ValueError(f"the parameter {parameter.name} of the tool {tool} needs a type hint")
        fields[parameter.name] = _field(hint, parameter.default)
    model = create_model(f"{tool}_arguments", __base__=ToolArgs, **fields)
    return model, context


def _field(hint: Any, default: Any) -> tuple[Any, FieldInfo]:
    """Return a field of the model; a string in ``Annotated`` describes it."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    given: dict[str, Any] = {} if default is inspect.Parameter.empty else {"default": default}
    told = next((note for note in notes if isinstance(note, str)), None)
    if told is not None:
        given["description"] = told
    return hint, Field(**given)
