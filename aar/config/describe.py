"""What the settings are, as data: JSON Schema for editors, and a commented config file to begin with.

Imported only when somebody asks: the docstrings of `aar.config.schema` are read from its source.
"""

from __future__ import annotations

import ast
import inspect
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from aar.config import schema
from aar.config.schema import Config, Section, ToolsConfig, ToolSettings

SCHEMA_FILE = "config.schema.json"
"""Name under which the first line of the written config file expects the schema, beside it."""
_WIDTH = 100
_ABOUT = """\
#:schema ./{file}
# Settings of aar. Take the # away before a key to set it; what stands there is the default,
# or an example where it says "not set". A table with NAME in it wants a name of your own.
# `aar config validate` checks this file, `aar config show --origin` tells what holds and why.
# `aar config schema > {file}` in this folder lets editors complete and check the keys.
"""


def docs() -> dict[str, tuple[str, dict[str, str]]]:
    """Return by name of class: its docstring, and the docstrings below its fields."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for node in ast.parse(inspect.getsource(schema)).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = (ast.get_docstring(node) or "", dict(_field_docs(node)))
    return found


def _field_docs(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, " ".join(text.value.split()).replace("``", "`")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config file, profiles included."""
    told = Config.model_json_schema()
    definitions: dict[str, Any] = told.pop("$defs")
    for name, (about, fields) in docs().items():
        table = told if name == "Config" else definitions.get(name)
        if table is None:
            continue
        if about:
            table["description"] = about.replace("``", "`")
        for key, text in fields.items():
            if key in table["properties"]:
                table["properties"][key]["description"] = text
    properties = dict(told["properties"])
    definitions["Profile"] = {"type": "object", "additionalProperties": False, "properties": properties}
    told["properties"]["profiles"] = {
        "type": "object",
        "description": "Settings by name, chosen with `--profile NAME`.",
        "additionalProperties": {"$ref": "#/$defs/Profile"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of aar",
        **told,
        "$defs": definitions,
    }


def commented_config() -> str:
    """Return a config file in which every key stands with its meaning and default, commented out."""
    told = docs()
    parts = [_ABOUT.format(file=SCHEMA_FILE)]
    for name, field in Config.model_fields.items():
        parts += _tables((name,), field.annotation, told)
    return "\n".join(parts)


def _tables(
    path: tuple[str, ...],
    annotation: object,
    told: dict[str, tuple[str, dict[str, str]]],
    named: bool = False,
) -> Iterator[str]:
    """Yield the table at ``path`` and those below it; one that is ``named`` by the user is a comment."""
    inner = _inner(annotation)
    if inner is not None:
        yield from _tables((*path, _placeholder(path)), inner, told, True)
    if not (isinstance(annotation, type) and issubclass(annotation, Section)):
        return
    about, fields = told.get(annotation.__name__, ("", {}))
    lines = [f"# {line}" for line in _wrapped(_meaning(about))]
    lines.append(("#" if named else "") + f"[{'.'.join(path)}]")
    below: list[tuple[str, object]] = []
    for key, field in annotation.model_fields.items():
        kind = field.annotation
        if _inner(kind) is not None or (isinstance(kind, type) and issubclass(kind, Section)):
            below.append((key, kind))
            continue
        lines += [f"# {line}" for line in _wrapped(fields.get(key, ""))]
        value: Any = {} if field.default_factory is not None else field.default
        unset = value is None or value is PydanticUndefined
        shown = f"{_toml(_example(cast('Any', kind)))}  # not set" if unset else _toml(value)
        lines.append(f"#{key} = {shown}")
    yield "\n".join(lines) + "\n"
    for key, kind in below:
        yield from _tables((*path, key), kind, told, named)
    if annotation is ToolsConfig:
        yield from _tables((*path, "NAME"), ToolSettings, told, True)


def _inner(annotation: object) -> type[Section] | None:
    """Return the class of the tables in a table of tables."""
    if typing.get_origin(annotation) is not dict:
        return None
    value = typing.get_args(annotation)[1]
    return value if isinstance(value, type) and issubclass(value, Section) else None


def _placeholder(path: tuple[str, ...]) -> str:
    return {"models": "MODEL", "examples": '"bash(git status *)"'}.get(path[-1], "NAME")


def _meaning(about: str) -> str:
    """Return what a class's docstring says behind the name of its table."""
    meaning = " ".join(about.partition(": ")[2].split()).replace("``", "`")
    return f"{meaning[:1].upper()}{meaning[1:]}"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _WIDTH)


def _example(annotation: object) -> Any:
    """Return a value of the right type for a key that has no default."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return _example(kinds[0])
    if typing.get_origin(annotation) is typing.Annotated:
        return _example(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is tuple:
        return ()
    return {bool: True, int: 1, float: 1}.get(cast("Any", annotation), "…")


def _toml(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in items) + " }" if value else "{}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in cast("tuple[Any, ...]", value)) + "]"
    # Strings, numbers and truth values are written alike in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)
