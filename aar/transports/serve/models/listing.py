"""``/v1/models``: aar and its agents, each under a name that a chat client can choose."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aar.transports.serve.endpoints import Endpoint, house_of
from aar.transports.serve.house import House, NotHereError

PLAIN = "aar"
"""The model that is aar itself, without an agent's profile."""


async def names_of(house: House) -> dict[str, str]:
    """Return the models by name, each with what it is for."""
    from aar.runtime.extras import load_profiles

    profiles, _ = await asyncio.to_thread(load_profiles, house.base)
    about = {f"{PLAIN}/{name}": profile.description for name, profile in profiles.items()}
    return {PLAIN: "aar itself, as `aar run` works", **about}


async def agent_of(house: House, model: str) -> str | None:
    """Return the agent that a model's name means; ``None``: aar itself.

    Raises:
        NotHereError: There is no such model.
    """
    names = await names_of(house)
    for name in (model, f"{PLAIN}/{model}"):
        if name in names:
            return None if name == PLAIN else name.removeprefix(f"{PLAIN}/")
    raise NotHereError(f"There is no model {model[:80]!r}; there are: {', '.join(names)}.")


async def models(request: Request) -> Response:
    """List aar and its agents as models, in the form that both kinds of clients read."""
    names = await names_of(house_of(request))
    data = [_model(name, about) for name, about in names.items()]
    first, last = data[0]["id"], data[-1]["id"]
    listed = {"object": "list", "data": data, "has_more": False, "first_id": first, "last_id": last}
    return JSONResponse(listed)


async def model(request: Request) -> Response:
    """Show one model."""
    name = request.path_params["name"]
    names = await names_of(house_of(request))
    if name not in names:
        raise NotHereError(f"There is no model {name[:80]!r}.")
    return JSONResponse(_model(name, names[name]))


def _model(name: str, about: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "aar",
        "display_name": name,
        "description": about,
    }


ENDPOINTS = (
    Endpoint("GET", "/v1/models", models),
    Endpoint("GET", "/v1/models/{name:path}", model),
)
