"""Which JSON values and XML-like texts are tool calls.

The shapes are those that open models were seen to write: OpenAI's, Hermes' and Qwen's, Mistral's,
LangChain's ``action`` and the ``<function=…>`` forms of Llama 3 and Qwen3-Coder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from aar.protocol.late import late_pattern
from aar.providers.dialects import loose_json
from aar.providers.dialects.base import Resolver

NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "params", "tool_input")
_HARMLESS = frozenset({"id", "type", "call_id", "index", "thought", "reason", "explanation"})

TAG_NAMES = r"(?:tool_?calls?|function_?calls?|tools|tool_use)"
"""Names of the tags that models put around a call, as a regular expression."""

_TAGGED = late_pattern(rf"<{TAG_NAMES}>(.*?)(?:</{TAG_NAMES}>|\Z)", re.DOTALL | re.IGNORECASE)
_FUNCTION = late_pattern(
    r"<(?:function=|invoke\s+name=|function\s+name=)[\"']?([\w.:-]+)[\"']?\s*>(.*?)"
    r"(?:</(?:function|invoke)>|(?=<(?:function=|invoke\s))|\Z)",
    re.DOTALL,
)
_PARAMETER = late_pattern(
    r"<parameter(?:=|\s+name=)[\"']?([\w.-]+)[\"']?\s*>\r?\n?(.*?)\r?\n?</parameter>", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A call before it gets its id."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a candidate turned out to be: calls, a problem, or neither (then it is no call at all).

    Attributes:
        unknown: The name of a tool that does not exist, in an otherwise complete call.
    """

    calls: tuple[Draft, ...] = ()
    problem: str | None = None
    unknown: str | None = None

    @property
    def nothing(self) -> bool:
        """Whether it is no call at all."""
        return not self.calls and self.problem is None


NO_CALL = Reading()


def read_text(text: str, resolve: Resolver, *, explicit: bool) -> Reading:
    """Read what stands inside a fence, a tag or alone: JSON values one after the other, or XML.

    Args:
        text: The candidate without its frame.
        resolve: Tells the registered name of a tool.
        explicit: The frame itself says that it is a call, so that a wrong inside is a problem.
    """
    text = text.strip()
    if text.startswith("<"):
        return _read_markup(text, resolve)
    readings: list[Reading] = []
    while text:
        end = loose_json.value_end(text) if text[0] in "{[" else None
        tail = text[end:].lstrip().lstrip("}]").lstrip() if end is not None else ""
        value, text = (text[: len(text) - len(tail)], tail) if tail else (text, "")
        readings.append(_read_json(value, resolve, explicit=explicit))
    return _together(readings, explicit=explicit)


def _read_json(text: str, resolve: Resolver, *, explicit: bool) -> Reading:
    try:
        value = loose_json.loads(text)
    except ValueError:
        if explicit or _mentions_call(text, resolve):
            return Reading(problem=_BROKEN)
        return NO_CALL
    return read_value(value, resolve, explicit=explicit)


_BROKEN = (
    "The tool call is not valid JSON. Write it again alone, with double quotes, and with quotes and line "
    'breaks inside strings escaped (\\" and \\n).'
)


_BEGINNING = late_pattern(
    rf"""[\[{{\s]*["'](?:{"|".join(NAME_KEYS)})["']\s*:\s*["']([\w.-]+)["']\s*,\s*["'](?:{"|".join(ARGUMENT_KEYS)})["']"""
)


def _mentions_call(text: str, resolve: Resolver) -> bool:
    match = _BEGINNING.match(text)
    return match is not None and resolve(match[1]) is not None


def _together(readings: list[Reading], *, explicit: bool) -> Reading:
    problem = next((reading for reading in readings if reading.problem), None)
    if problem is not None:
        return problem
    if not readings or (not explicit and any(reading.nothing for reading in readings)):
        return NO_CALL
    return Reading(tuple(call for reading in readings for call in reading.calls))


def read_value(value: object, resolve: Resolver, *, explicit: bool) -> Reading:
    """Read one JSON value: a call, a list of calls, or something else."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _together([read_value(item, resolve, explicit=explicit) for item in items], explicit=explicit)
    if not isinstance(value, dict):
        return NO_CALL
    call = cast("dict[str, Any]", value)
    if set(call) == {"tool_calls"} and isinstance(call["tool_calls"], list):
        return read_value(cast("list[object]", call["tool_calls"]), resolve, explicit=explicit)
    if isinstance(call.get("function"), dict):
        if not explicit and not set(call) <= {"function"} | _HARMLESS:
            return NO_CALL
        call = cast("dict[str, Any]", call["function"])
    return _read_call(call, resolve, explicit=explicit)


def _read_call(call: dict[str, Any], resolve: Resolver, *, explicit: bool) -> Reading:
    name_key = next((key for key in NAME_KEYS if isinstance(call.get(key), str)), None)
    argument_key = next((key for key in ARGUMENT_KEYS if key in call), None)
    if name_key is None:
        return NO_CALL
    others = set(call) - {name_key, argument_key} - _HARMLESS
    if not explicit and (others or (argument_key is None and len(call) > 1)):
        return NO_CALL
    wanted: str = call[name_key]
    name = resolve(wanted)
    if name is None:
        return _unknown(wanted) if explicit or argument_key is not None else NO_CALL
    if argument_key is None and others:
        return Reading(problem=f'Put the arguments of {name} into an object under "arguments".')
    arguments = _arguments(call.get(argument_key) if argument_key else {})
    if arguments is None:
        return Reading(problem=f'The "{argument_key}" of {name} must be a JSON object.')
    if arguments.get("type") == "object" and isinstance(arguments.get("properties"), dict):
        return NO_CALL
    return Reading((Draft(name, arguments),))


def _unknown(name: str) -> Reading:
    return Reading(problem=f"There is no tool named {name[:60]!r}.", unknown=name)


def _arguments(value: object) -> dict[str, Any] | None:
    if isinstance(value, str) and value.strip():
        try:
            value = loose_json.loads(value)
        except ValueError:
            return None
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {} if value is None or value == "" else None


def _read_markup(text: str, resolve: Resolver) -> Reading:
    inner = _TAGGED.findall(text)
    if inner and re.match(rf"<{TAG_NAMES}>", text, re.IGNORECASE):
        return _together([read_text(body, resolve, explicit=True) for body in inner], explicit=True)
    return _read_functions(text, resolve) if _FUNCTION.match(text) else NO_CALL


def _read_functions(text: str, resolve: Resolver) -> Reading:
    drafts: list[Draft] = []
    for wanted, body in _FUNCTION.findall(text):
        name = resolve(wanted)
        if name is None:
            return _unknown(wanted)
        parameters = dict(_PARAMETER.findall(body))
        rest = _PARAMETER.sub("", body).strip().removesuffix("</function>").strip()
        arguments = parameters if parameters or not rest else _arguments(rest)
        if arguments is None or (parameters and rest):
            return Reading(problem=_BROKEN)
        drafts.append(Draft(name, arguments))
    return Reading(tuple(drafts))


def read_named(wanted: str, arguments: str, resolve: Resolver) -> Reading:
    """Read a call whose name and arguments were told apart, as in ``Action:`` and ``Action Input:``."""
    name = resolve(wanted.strip().strip("`*\"'"))
    if name is None:
        return _unknown(wanted.strip())
    found = _arguments(arguments.strip().strip("`").strip())
    if found is None:
        return Reading(problem=f"The arguments of {name} must be one JSON object.")
    return Reading((Draft(name, found),))
