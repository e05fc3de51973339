"""Scenario files: what a scripted model says, step by step (JSON or TOML)."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)
from pydantic_core import ErrorDetails, from_json

from aar.protocol.errors import ConfigurationError
from aar.protocol.usage import Price
from aar.providers.base import Dialect

_MAX_BYTES = 50_000_000


class _Table(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


_T = TypeVar("_T", bound=_Table)


class ScriptedCall(_Table):
    """A tool call. ``arguments`` as text goes out as it is, also when it is no JSON."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str | None = None


class Step(_Table):
    """One answer. Every key may also stand under ``defaults``."""

    text: str = ""
    reasoning: str = ""
    text_repeat: NonNegativeInt = 1
    repeat: NonNegativeInt = 1
    tool_calls: list[ScriptedCall] = Field(default_factory=list[ScriptedCall])
    finish: str | None = None
    usage: dict[str, Any] | None = None
    status: Annotated[int, Field(ge=100, le=599)] = 200
    error: str = "scripted error"
    headers: dict[str, str] = Field(default_factory=dict)
    drop_after_chars: NonNegativeInt | None = None
    raw_sse: list[str] | None = None
    chunk_chars: NonNegativeInt = 24
    arg_chunk_chars: NonNegativeInt = 64
    first_delay_ms: NonNegativeFloat = 0
    chunk_delay_ms: NonNegativeFloat = 0
    chars_per_token: PositiveInt = 4


class Scenario(_Table):
    """A whole file."""

    steps: Annotated[list[dict[str, Any]], Field(min_length=1)]
    model: str = "scripted"
    select: Literal["counter", "history"] = "counter"
    side_reply: str | None = "ok"
    after: Literal["last", "loop", "error"] = "last"
    defaults: dict[str, Any] = Field(default_factory=dict)
    set: dict[str, str | int | float] = Field(default_factory=dict)
    price: Price | None = None
    context_window: PositiveInt | None = None
    dialect: Dialect | None = None


class Script:
    """A scenario, checked and with its repetitions spread out."""

    def __init__(self, scenario: Scenario, source: str) -> None:
        self.scenario = scenario
        self._expanded: list[tuple[dict[str, Any], int]] = []
        for position, step in enumerate(scenario.steps):
            merged = {**scenario.defaults, **step}
            checked = _validate(Step, merged, source, f"steps[{position}]")
            self._expanded += [(merged, i) for i in range(checked.repeat)]
        if not self._expanded:
            raise ConfigurationError(f"The scenario {source} has no steps left: every repeat is 0.")
        self.uses_tools = any(step.get("tool_calls") for step, _ in self._expanded)

    def __len__(self) -> int:
        return len(self._expanded)

    def step(self, number: int, variables: Mapping[str, object]) -> Step:
        """Return step ``number`` with its placeholders filled in."""
        raw, repetition = self._expanded[number]
        return Step.model_validate(fill(raw, {**variables, "i": repetition, "n": number}))

    def reply(self, text: str) -> Step:
        """Return a step of nothing but ``text``."""
        return Step.model_validate({**self.scenario.defaults, "text": text})


def load_script(path: Path) -> Script:
    """Read a scenario file; the ending ``.toml`` means TOML, everything else JSON.

    Raises:
        ConfigurationError: The file cannot be read, or a key is missing or of the wrong form.
    """
    source = str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"The scenario {source} is larger than {_MAX_BYTES // 1_000_000} MB.")
        body = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The scenario {source} cannot be read: {error.strerror or error}. Give a JSON or TOML file."
        ) from error
    try:
        parsed = tomllib.loads(body.decode()) if path.suffix == ".toml" else from_json(body)
    except ValueError as error:
        form = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigurationError(f"The scenario {source} is not valid {form}: {error}.") from error
    if not isinstance(parsed, dict):
        raise ConfigurationError(f"The scenario {source} must be an object with a list named 'steps'.")
    return Script(_validate(Scenario, cast("dict[str, Any]", parsed), source, ""), source)


def _validate(model: type[_T], value: dict[str, Any], source: str, place: str) -> _T:
    try:
        checked = model.model_validate(value)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error.errors()[0], source, place)) from None
    for key, near in _typos(model, value):
        at = f"{place}.{key}" if place else key
        raise ConfigurationError(f"The scenario {source} has an unknown key {at!r}. Did you mean {near!r}?")
    return checked


def _typos(model: type[BaseModel], value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield keys that are all but a known one; others are comments."""
    for key in value:
        if key not in model.model_fields:
            near = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.8)
            if near:
                yield key, near[0]


def _sentence(error: ErrorDetails, source: str, place: str) -> str:
    at = place
    for part in error["loc"]:
        at += f"[{part}]" if isinstance(part, int) else f".{part}" if at else str(part)
    expected = error["msg"][:1].lower() + error["msg"][1:]
    return f"The scenario {source} has a bad value at {at or 'the top'!r}: {expected}."


def fill(value: Any, variables: Mapping[str, object]) -> Any:
    """Return ``value`` with ``{name}`` replaced in every string; unknown names stay, ``{{ }}`` are braces."""
    if isinstance(value, str):
        if "{" not in value and "}}" not in value:
            return value
        text = value.replace("{{", "\0").replace("}}", "\1")
        for name, replacement in variables.items():
            text = text.replace(f"{{{name}}}", str(replacement))
        return text.replace("\0", "{").replace("\1", "}")
    if isinstance(value, list):
        return [fill(item, variables) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: fill(item, variables) for key, item in cast("dict[str, Any]", value).items()}
    return value
