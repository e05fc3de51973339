"""JSON Schemas in the form that Gemini takes.

Source: ``parametersJsonSchema`` and ``responseJsonSchema`` of https://ai.google.dev/api/generate-content:
only the keywords below are supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_KEPT = frozenset(
    {
        "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items",
        "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties",
        "additionalProperties", "required", "propertyOrdering",
    }
)  # fmt: skip
_OF_SCHEMAS = frozenset({"properties", "$defs"})


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with what Gemini does not know left out or said in another way."""
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "const":
            cleaned["enum"] = [value]
        elif key == "definitions" and isinstance(value, Mapping):
            cleaned["$defs"] = _each(cast("Mapping[str, Any]", value))
        elif key == "$ref" and isinstance(value, str):
            cleaned[key] = value.replace("#/definitions/", "#/$defs/")
        elif key in _OF_SCHEMAS and isinstance(value, Mapping):
            cleaned[key] = _each(cast("Mapping[str, Any]", value))
        elif key in _KEPT:
            cleaned[key] = _inner(value) if key not in {"enum", "required"} else value
    return _merged(schema, cleaned)


def _merged(schema: Mapping[str, Any], cleaned: dict[str, Any]) -> dict[str, Any]:
    """Take over the parts of ``allOf``, which Gemini does not know."""
    for part in schema.get("allOf") or ():
        if not isinstance(part, Mapping):
            continue
        for key, value in clean_schema(cast("Mapping[str, Any]", part)).items():
            if key == "properties" and key in cleaned:
                cleaned[key] = {**value, **cleaned[key]}
            elif key == "required" and key in cleaned:
                cleaned[key] = [*cleaned[key], *(name for name in value if name not in cleaned[key])]
            else:
                cleaned.setdefault(key, value)
    return cleaned


def _each(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _inner(schema) for name, schema in schemas.items()}


def _inner(value: Any) -> Any:
    if isinstance(value, Mapping):
        return clean_schema(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_inner(item) for item in cast("list[Any]", value)]
    return value
