"""Argument models of tools: the lean JSON Schema that the model reads, and the check of what it sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.tool import SideEffect, ToolHandler, ToolSpec

JsonDict = dict[str, Any]

_JSON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_PYTHON_TYPES: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_TYPE_NAMES: Final = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


class ToolArgs(BaseModel):
    """Base of argument models: immutable, unknown names are errors, built when first used."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def tool_spec(
    name: str,
    description: str,
    arguments: type[BaseModel],
    side_effects: AbstractSet[SideEffect],
    handler: ToolHandler,
    *,
    summary: str,
    timeout_s: float | None = None,
    idempotent: bool = False,
    concurrency: Literal["parallel", "serial"] = "serial",
    aliases: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> ToolSpec:
    """Return a `ToolSpec` whose schema is made from ``arguments``."""
    return ToolSpec(
        name=name,
        description=description,
        input_schema=lean_schema(arguments),
        side_effects=frozenset(side_effects),
        handler=handler,
        arguments=arguments,
        timeout_s=timeout_s,
        idempotent=idempotent,
        concurrency=concurrency,
        summary=summary,
        aliases=dict(aliases or {}),
        dry_run=dry_run,
    )


def lean_schema(model: type[BaseModel]) -> JsonDict:
    """Return the JSON Schema of ``model`` without titles, references and null variants.

    Made from the fields directly, since building pydantic's validators for every tool at the start of a
    program costs more than the rest of it; an annotation beyond the plain ones goes through pydantic.
    """
    properties: JsonDict = {}
    required: list[str] = []
    for name, field in model.model_fields.items():
        schema = _plain_schema(field.annotation)
        if schema is None:
            return _pydantic_schema(model)
        for constraint in field.metadata:
            schema.update(_constraint(constraint, schema))
        if field.is_required():
            required.append(name)
        elif field.default is not None and field.default_factory is None:
            schema["default"] = field.default
        if field.description:
            schema["description"] = field.description
        properties[name] = schema
    result: JsonDict = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    return {**result, "additionalProperties": False}


def _plain_schema(annotation: Any) -> JsonDict | None:
    """Return the schema of a plain annotation, or ``None`` for any other."""
    if annotation in _PYTHON_TYPES:
        return {"type": _PYTHON_TYPES[annotation]}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return lean_schema(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(part, str) for part in parts):
        return {"enum": list(parts), "type": "string"}
    if origin in (Union, UnionType):
        kinds = [part for part in parts if part is not type(None)]
        return _plain_schema(kinds[0]) if len(kinds) == 1 else None
    if origin is list:
        items = _plain_schema(parts[0])
        return None if items is None else {"type": "array", "items": items}
    return None


def _constraint(constraint: Any, schema: JsonDict) -> JsonDict:
    unit = "Items" if schema["type"] == "array" else "Length"
    names = {
        "ge": "minimum",
        "le": "maximum",
        "gt": "exclusiveMinimum",
        "lt": "exclusiveMaximum",
        "min_length": "min" + unit,
        "max_length": "max" + unit,
        "pattern": "pattern",
    }
    found = {key: getattr(constraint, name, None) for name, key in names.items()}
    return {key: value for key, value in found.items() if value is not None}


def _pydantic_schema(model: type[BaseModel]) -> JsonDict:
    schema = model.model_json_schema()
    definitions = cast("JsonDict", schema.pop("$defs", {}))
    lean = cast("JsonDict", _lean(schema, definitions))
    lean.pop("description", None)
    lean.setdefault("properties", {})
    lean["additionalProperties"] = False
    return lean


def _lean(node: Any, definitions: JsonDict) -> Any:
    if isinstance(node, list):
        return [_lean(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    found = cast("JsonDict", node)
    if "$ref" in found:
        target = definitions[str(found["$ref"]).rsplit("/", 1)[-1]]
        rest = {key: value for key, value in found.items() if key != "$ref"}
        return _lean({**target, **rest}, definitions)
    if "properties" in found:
        properties = {key: _lean(value, definitions) for key, value in found["properties"].items()}
        rest = {key: value for key, value in found.items() if key not in ("properties", "title")}
        return {**_lean(rest, definitions), "properties": properties}
    result = {key: _lean(value, definitions) for key, value in found.items() if key != "title"}
    variants = [item for item in result.get("anyOf", ()) if item != {"type": "null"}]
    if len(variants) == 1:
        result.pop("anyOf")
        result = {**variants[0], **result}
    if result.get("default", 0) is None:
        del result["default"]
    return result


def validate_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> BaseModel | JsonDict:
    """Return the arguments as ``spec.arguments``, or as a dict checked against ``spec.input_schema``.

    Foreign names become ours, ``null`` for an optional argument counts as absent, ``"5"`` becomes 5 where
    a number is needed, and a list or object that came as JSON text is read.

    Raises:
        ToolFailure: ``invalid_arguments``, with a sentence for each wrong argument.
    """
    given = _prepare(spec, arguments)
    if spec.arguments is None:
        return _check_dict(spec, given)
    try:
        return spec.arguments.model_validate(given)
    except ValidationError as error:
        problems = [_problem(spec, dict(item)) for item in error.errors(include_url=False)]
    raise _failure(spec, problems)


def _prepare(spec: ToolSpec, arguments: Mapping[str, Any]) -> JsonDict:
    properties = cast("dict[str, JsonDict]", spec.input_schema.get("properties", {}))
    required = set(cast("list[str]", spec.input_schema.get("required", [])))
    given: JsonDict = {}
    for name, value in arguments.items():
        ours = spec.aliases.get(name, name) if name not in properties else name
        if ours != name and (ours in arguments or ours in given):
            raise _failure(spec, [f"'{name}' and '{ours}' mean the same; give one of them"])
        if value is None and ours in properties and ours not in required:
            continue
        given[ours] = _unpack(value, properties.get(ours, {}))
    return given


def _unpack(value: Any, schema: JsonDict) -> Any:
    """Read JSON text where a list or object is needed."""
    wanted = schema.get("type")
    if not isinstance(value, str) or wanted not in ("array", "object"):
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, _JSON_TYPES[wanted]) else value


def _check_dict(spec: ToolSpec, given: JsonDict) -> JsonDict:
    properties = cast("dict[str, JsonDict]", spec.input_schema.get("properties", {}))
    required = cast("list[str]", spec.input_schema.get("required", []))
    problems = [f"'{name}' is missing" for name in required if name not in given]
    for name, value in given.items():
        if name in properties:
            given[name] = value = _to_number(value, properties[name])
            problems.extend(_type_problem(name, value, properties[name]))
        elif spec.input_schema.get("additionalProperties") is False:
            problems.append(_unknown(spec, name))
    if problems:
        raise _failure(spec, problems)
    return given


def _to_number(value: Any, schema: JsonDict) -> Any:
    if not isinstance(value, str) or schema.get("type") not in ("integer", "number"):
        return value
    try:
        return int(value) if schema["type"] == "integer" else float(value)
    except ValueError:
        return value


def _type_problem(name: str, value: Any, schema: JsonDict) -> list[str]:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else cast("list[str]", wanted or [])
    allowed = tuple(kind for each in names for kind in _JSON_TYPES.get(each, (object,)))
    wrong_bool = isinstance(value, bool) and bool not in allowed and object not in allowed
    if allowed and (wrong_bool or not isinstance(value, allowed)):
        expected = " or ".join(_TYPE_NAMES.get(each, each) for each in names)
        return [f"'{name}' must be {expected}, not {_shown(value)}"]
    choices = cast("list[Any]", schema.get("enum", []))
    if choices and value not in choices:
        return [f"'{name}' must be one of {', '.join(map(str, choices))}, not {_shown(value)}"]
    return []


def _problem(spec: ToolSpec, error: JsonDict) -> str:
    where = cast("tuple[str | int, ...]", error["loc"])
    name = ".".join(str(part) for part in where)
    kind = str(error["type"])
    if kind == "missing":
        return f"'{name}' is missing ({_expected(spec, where)} is needed)"
    if kind == "extra_forbidden" and len(where) == 1:
        return _unknown(spec, name)
    if kind == "value_error":
        message = str(error["msg"]).removeprefix("Value error, ")
        return f"'{name}': {message}" if name else message
    if kind.endswith(("_type", "_parsing", "int_from_float")):
        return f"'{name}' must be {_expected(spec, where)}, not {_shown(error['input'])}"
    return f"'{name}': {error['msg']}, not {_shown(error['input'])}"


def _expected(spec: ToolSpec, where: tuple[str | int, ...]) -> str:
    node: JsonDict = spec.input_schema
    for part in where:
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    return _TYPE_NAMES.get(str(node.get("type")), "a value")


def _unknown(spec: ToolSpec, name: str) -> str:
    near = get_close_matches(name, list(spec.input_schema.get("properties", {})), n=1)
    return f"'{name}' is not an argument of {spec.name}" + (f"; did you mean '{near[0]}'?" if near else "")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _failure(spec: ToolSpec, problems: Sequence[str]) -> ToolFailure:
    required = cast("list[str]", spec.input_schema.get("required", []))
    names = [
        f"{name} (required)" if name in required else name for name in spec.input_schema.get("properties", {})
    ]
    accepted = f" {spec.name} accepts: {', '.join(names)}." if names else f" {spec.name} takes no arguments."
    return ToolFailure(ToolCategory.INVALID_ARGUMENTS, ". ".join(problems).rstrip(".") + "." + accepted)
