"""The application: routes, errors, the page, and the guard around all of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from aar.protocol.errors import AarError
from aar.runtime.base import log_failure
from aar.transports.serve import api, openapi
from aar.transports.serve.guard import MAX_BODY, Guard, error_body
from aar.transports.serve.house import FullError, House, NotHereError, http_status
from aar.transports.serve.models import anthropic, listing, openai
from aar.transports.serve.models.turn import GoneError

ENDPOINTS = (*api.ENDPOINTS, *listing.ENDPOINTS, *openai.ENDPOINTS, *anthropic.ENDPOINTS)
_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
OPEN_PATHS = frozenset({*_FILES, "/health", "/docs", "/openapi.json"})
"""What needs no token: it tells nothing of the user or of the project."""


def make_app(house: House, token: str, *, hosts: Collection[str] = (), max_body: int | None = None) -> Guard:
    """Return the application of ``aar serve``.

    Args:
        house: The sessions.
        token: The secret that requests must show.
        hosts: More names by which the server may be called.
        max_body: Bytes of the largest body; ``None``: as built in.
    """
    routes = [Route(one.path, one.handler, methods=[one.method]) for one in ENDPOINTS]
    routes += [Route(path, partial(_file, name, kind)) for path, (name, kind) in _FILES.items()]
    routes += [
        Route("/health", _health),
        Route("/docs", _docs),
        Route("/openapi.json", _schema),
    ]
    failures = dict.fromkeys((AarError, NotHereError, FullError), _failed)
    others = {GoneError: _gone, HTTPException: _no_such, Exception: _defect}
    app = Starlette(routes=routes, exception_handlers={**failures, **others})
    app.state.house = house
    return Guard(app, token, hosts=hosts, open_paths=OPEN_PATHS, max_body=max_body or MAX_BODY)


async def _file(name: str, kind: str, _request: Request) -> Response:
    return Response((_PAGE / name).read_bytes(), headers={"content-type": kind})


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _docs(_request: Request) -> Response:
    return HTMLResponse(openapi.page(ENDPOINTS))


async def _schema(_request: Request) -> Response:
    return Response(json.dumps(openapi.schema(ENDPOINTS), indent=1), media_type="application/json")


async def _failed(_request: Request, error: Exception) -> Response:
    status = http_status(error)
    # Clients of model APIs would ask again by themselves: an agent would do its work twice.
    return JSONResponse(error_body(status, str(error)), status, headers={"x-should-retry": "false"})


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"{request.method} {request.url.path[:200]} is not served; GET /docs tells what is."
    return JSONResponse(error_body(error.status_code, sentence), error.status_code, headers=error.headers)


async def _defect(request: Request, error: Exception) -> Response:
    log_failure(f"{request.method} {request.url.path} failed", error)
    sentence = f"aar failed inside ({type(error).__name__}). `aar logs` has the details."
    return JSONResponse(error_body(500, sentence), 500)
