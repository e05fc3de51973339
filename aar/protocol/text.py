"""Text that is safe to store: valid Unicode, no lone surrogates.

Models, file names and JSON escapes can carry lone surrogates, which no UTF-8 file can hold. They are
replaced by U+FFFD at the border, so that every later part may rely on ``str.encode()``.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


def clean_text(text: str) -> str:
    """Return ``text`` with every lone surrogate replaced by U+FFFD (a valid pair is joined)."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Any) -> Any:
    """Apply `clean_text` to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {clean_json(key): clean_json(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in cast("list[Any]", value)]
    return value


class _Clean:
    """Applies `clean_json` to values from Python. The parser of JSON takes no lone surrogate anyway."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = handler(source)
        cleaned = core_schema.no_info_before_validator_function(clean_json, plain)
        return core_schema.json_or_python_schema(plain, cleaned)


Text = Annotated[str, _Clean()]
"""A pydantic string field that accepts any Python string and holds valid Unicode."""

JsonObject = Annotated[dict[str, Any], _Clean()]
"""A pydantic field for a JSON object whose strings are valid Unicode."""
