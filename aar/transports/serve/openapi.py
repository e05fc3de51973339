"""The description of all endpoints, made from the endpoints themselves, and a page that shows it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from aar import __version__
from aar.transports.serve.endpoints import Endpoint

_ABOUT = (
    "Sessions of the coding assistant aar in one project. Every request shows the token of the server: "
    "`Authorization: Bearer TOKEN`, or `x-api-key: TOKEN`."
)
_ERROR = {
    "type": "object",
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            "required": ["type", "message"],
        },
    },
    "required": ["type", "error"],
}


def schema(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document for ``endpoints``."""
    paths: dict[str, dict[str, Any]] = {}
    models: dict[str, Any] = {"Error": _ERROR}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path.replace(":path}", "}"), {})[endpoint.method.lower()] = _operation(
            endpoint, models
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "aar", "version": __version__, "description": _ABOUT},
        "security": [{"token": []}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": models,
        },
    }


def _operation(endpoint: Endpoint, models: dict[str, Any]) -> dict[str, Any]:
    summary, _, description = inspect.cleandoc(endpoint.handler.__doc__ or "").partition("\n\n")
    told: dict[str, Any] = {
        "operationId": getattr(endpoint.handler, "__name__", endpoint.path),
        "summary": summary,
        "responses": {str(endpoint.status): _success(endpoint), "4XX": _refused()},
    }
    if description:
        told["description"] = description
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)", endpoint.path)]
    parameters += [_parameter(name, "query") for name in endpoint.query]
    if endpoint.streams and "after" in endpoint.query:
        parameters.append(_parameter("Last-Event-ID", "header"))
    if parameters:
        told["parameters"] = parameters
    if endpoint.body is not None:
        name = endpoint.body.__name__
        found = endpoint.body.model_json_schema(ref_template="#/components/schemas/{model}")
        models.update(found.pop("$defs", {}))
        models[name] = found
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        told["requestBody"] = {"content": content, "required": True}
    return told


def _success(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.status == 204:
        return {"description": "Done."}
    kinds = ["text/event-stream"] if endpoint.streams else []
    if endpoint.method == "POST" or not endpoint.streams:
        kinds.insert(0, "application/json")
    return {"description": "Done.", "content": {kind: {} for kind in kinds}}


def _refused() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "What is wrong, in one sentence.", "content": content}


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def page(endpoints: Sequence[Endpoint]) -> str:
    """Return the same as a page of HTML that needs nothing but the style sheet of this server."""
    sections = "".join(_section(endpoint) for endpoint in endpoints)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>aar: HTTP</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/page.css"></head><body class="reference"><main>'
        f"<h1>aar {escape(__version__)}: HTTP</h1><p>{escape(_ABOUT)} "
        'The same for programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"{sections}</main></body></html>"
    )


def _section(endpoint: Endpoint) -> str:
    told = inspect.cleandoc(endpoint.handler.__doc__ or "")
    rows = ""
    if endpoint.body is not None:
        for name, field in endpoint.body.model_fields.items():
            needed = "needed" if field.is_required() else ""
            about = escape(field.description or "")
            rows += f"<tr><td><code>{escape(name)}</code></td><td>{needed}</td><td>{about}</td></tr>"
    table = f"<table><thead><tr><th>body</th><th></th><th></th></tr></thead>{rows}</table>" if rows else ""
    query = ", ".join(f"?{name}=" for name in endpoint.query)
    shown = f"<p>Parameters: <code>{escape(query)}</code></p>" if query else ""
    head = f"<code>{endpoint.method} {escape(endpoint.path)}</code>"
    return f"<section><h2>{head}</h2><p>{escape(told)}</p>{shown}{table}</section>"
