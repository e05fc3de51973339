"""What an endpoint is: a function with its method, path and body, from which routes and schema are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.transports.serve.house import House

Handler = Callable[[Request], Awaitable[Response]]
Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Endpoint:
    """One way in.

    Attributes:
        method: HTTP method.
        path: With ``{names}`` of what differs.
        handler: Does it; its docstring says what.
        body: Model of the body; ``None``: it takes none.
        query: Names of parameters.
        status: Of a success.
        streams: Whether the answer is, or may be, a stream of events.
    """

    method: str
    path: str
    handler: Handler
    body: type[BaseModel] | None = None
    query: tuple[str, ...] = ()
    status: int = 200
    streams: bool = False


def house_of(request: Request) -> House:
    """Return the sessions of the server that got ``request``."""
    house: House = request.app.state.house
    return house


async def body_of(request: Request, model: type[Body], *, empty: bool = False) -> Body:
    """Return the body of a request.

    Args:
        request: The request.
        model: What it must be.
        empty: Whether no body is as good as an empty object.

    Raises:
        UsageError: It is not that; the message says where.
    """
    raw = await request.body()
    if not raw.strip() and empty:
        return model()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UsageError("The body must be JSON, with content-type: application/json.")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    except RecursionError:
        raise UsageError("The body is nested too deeply.") from None
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    raise UsageError(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}.")
