"""Sessions over HTTP: open, prompt, watch, answer, cancel."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aar.config.schema import PermissionMode
from aar.protocol.errors import UsageError
from aar.protocol.messages import ContentBlock, ImageBlock, ResourceBlock, TextBlock
from aar.transports.serve.endpoints import Endpoint, body_of, house_of
from aar.transports.serve.house import NotHereError
from aar.transports.serve.overrides import Wish
from aar.transports.serve.sse import Stream, frame

Block = Annotated[TextBlock | ImageBlock | ResourceBlock, Field(discriminator="type")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PromptBody(_Body):
    """A prompt: it starts a run; while one is under way it steers that, or waits."""

    content: Annotated[str, Field(min_length=1)] | Annotated[list[Block], Field(min_length=1)] = Field(
        description="Text, or content blocks. `@file` in text is expanded under the rules of read_file."
    )
    when: Literal["now", "later"] = Field(
        "now", description="While a run is under way: `now` steers it, `later` waits until it is over."
    )


class AnswerBody(_Body):
    """The answer to an approval request or to a question of the model."""

    decision: Literal["allow", "reject", "cancelled"]
    scope: Literal["once", "session"] = Field("once", description="How long the proposed rule is kept.")
    edited_arguments: dict[str, Any] | None = Field(None, description="Arguments to run it with instead.")
    feedback: str | None = Field(None, description="Words for the model; for `ask_user` the answer itself.")


class ChangeBody(_Body):
    """Changes to an open session."""

    title: str | None = Field(None, min_length=1, max_length=500)
    mode: PermissionMode | None = Field(None, description="No looser than the server's.")


async def sessions(request: Request) -> Response:
    """List the sessions of the project, last written first."""
    listed = await house_of(request).sessions()
    limit = _number(request, "limit", 100)
    return JSONResponse({"sessions": listed[:limit]})


async def create(request: Request) -> Response:
    """Begin a session."""
    room = await house_of(request).create(await body_of(request, Wish, empty=True))
    return JSONResponse(room.state(), status_code=201)


async def show(request: Request) -> Response:
    """Tell the state of a session: open questions included where it is open here."""
    house, session_id = house_of(request), request.path_params["id"]
    room = house.room(session_id)
    return JSONResponse(room.state() if room is not None else await house.stored_state(session_id))


async def change(request: Request) -> Response:
    """Give a session another title or mode."""
    body = await body_of(request, ChangeBody)
    room = await house_of(request).enter(request.path_params["id"])
    if body.mode is not None:
        room.set_mode(body.mode)
    if body.title is not None:
        room.session.rename(body.title)
    return JSONResponse(room.state())


async def close(request: Request) -> Response:
    """End what runs in a session and close it; it stays on disk and can be opened again."""
    await house_of(request).leave(request.path_params["id"])
    return Response(status_code=204)


async def prompt(request: Request) -> Response:
    """Say something in a session; a stored one is opened."""
    body = await body_of(request, PromptBody)
    room = await house_of(request).enter(request.path_params["id"])
    if room.headless:
        raise UsageError("This session answers a request of its own; begin another one to talk.")
    content: tuple[ContentBlock, ...] = (
        (TextBlock(text=body.content),) if isinstance(body.content, str) else tuple(body.content)
    )
    before = room.session.last_seq
    if body.when == "later" and room.busy:
        room.conversation.enqueue(content)
        taken = "queue"
    else:
        taken = room.conversation.submit(content)
    return JSONResponse({"taken": taken, "after": before}, status_code=202)


async def cancel(request: Request) -> Response:
    """End the run under way at once."""
    room = _open_room(request)
    room.conversation.interrupt()
    return Response(status_code=202)


async def stop(request: Request) -> Response:
    """End the run under way after its step, with one last answer."""
    room = _open_room(request)
    room.conversation.agent.stop()
    return Response(status_code=202)


async def approvals(request: Request) -> Response:
    """List the open questions of a session, oldest first."""
    return JSONResponse({"approvals": _open_room(request).approvals()})


async def answer(request: Request) -> Response:
    """Answer an open question."""
    body = await body_of(request, AnswerBody)
    room, request_id = _open_room(request), request.path_params["request_id"]
    if request_id not in {asked["request_id"] for asked in room.approvals()}:
        raise NotHereError("That question is not open; it was answered or its run has ended.")
    details = body.model_dump(exclude={"decision"})
    room.conversation.answer(request_id, body.decision, **details)
    return Response(status_code=204)


async def events(request: Request) -> Response:
    """Watch a session: what is stored, then what happens, as server-sent events.

    Stored events carry their ``seq`` as ``id``; a client that comes back with ``Last-Event-ID`` misses none.
    """
    house, session_id = house_of(request), request.path_params["id"]
    after = _number(request, "after", 0)
    if "last-event-id" in request.headers:
        told = request.headers["last-event-id"]
        after = int(told) if told.isdigit() and len(told) < 16 else after
    pieces = request.query_params.get("pieces", "true") != "false"
    follow = request.query_params.get("follow", "true") != "false"
    house.demand(session_id)

    async def frames() -> AsyncGenerator[bytes]:
        async with aclosing(house.events(session_id, after, pieces=pieces, follow=follow)) as told:
            async for event in told:
                yield frame(event.to_json(), seq=event.seq)

    return Stream(frames(), house.ending)


def _open_room(request: Request) -> Any:
    room = house_of(request).room(request.path_params["id"])
    if room is None:
        raise NotHereError("That session is not open here; a prompt opens it.")
    return room


def _number(request: Request, name: str, default: int) -> int:
    told = request.query_params.get(name)
    if told is None:
        return default
    if not told.isdigit() or len(told) > 15:
        raise UsageError(f"{name} must be a number.")
    return int(told)


_SESSION = "/api/sessions/{id}"
ENDPOINTS = (
    Endpoint("GET", "/api/sessions", sessions, query=("limit",)),
    Endpoint("POST", "/api/sessions", create, Wish, status=201),
    Endpoint("GET", _SESSION, show),
    Endpoint("PATCH", _SESSION, change, ChangeBody),
    Endpoint("DELETE", _SESSION, close, status=204),
    Endpoint("GET", f"{_SESSION}/events", events, query=("after", "pieces", "follow"), streams=True),
    Endpoint("POST", f"{_SESSION}/prompts", prompt, PromptBody, status=202),
    Endpoint("POST", f"{_SESSION}/cancel", cancel, status=202),
    Endpoint("POST", f"{_SESSION}/stop", stop, status=202),
    Endpoint("GET", f"{_SESSION}/approvals", approvals),
    Endpoint("POST", f"{_SESSION}/approvals/{{request_id}}", answer, AnswerBody, status=204),
)
