"""JSON-RPC 2.0 messages: what a line is, and what answers it. No event loop, no state."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
CANCELLED = -32800


class RpcError(Exception):
    """An error that is answered as such.

    Attributes:
        code: JSON-RPC code.
        message: One sentence.
        data: More, for programs.
    """

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def invalid_params(reason: str, **data: Any) -> RpcError:
    """Return the error for parameters that cannot be used."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {reason}", {"reason": reason, **data})


def result_message(request_id: Any, result: Any) -> dict[str, Any]:
    """Return the answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: Any, error: RpcError) -> dict[str, Any]:
    """Return the answer to a request that failed."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether a value that was read from JSON is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a value that was read from JSON is an array."""
    return isinstance(value, list)


def object_of(value: object) -> dict[str, Any]:
    """Return an object that was read from JSON; an empty one in place of anything else."""
    return value if is_object(value) else {}


def parse(line: bytes) -> dict[str, Any]:
    """Return the message of a line.

    Raises:
        RpcError: It is no JSON, or no object.
    """
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"Parse error: this line is no JSON ({str(error)[:200]}).") from None
    if not is_object(message):
        raise RpcError(INVALID_REQUEST, "Invalid request: a message is one JSON object a line; no batches.")
    return message


def kind_of(message: dict[str, Any]) -> str:
    """Return ``request``, ``notification`` or ``response``.

    Raises:
        RpcError: It is none of them. What answers something is never answered itself.
    """
    method = message.get("method")
    if method is None and ("result" in message or "error" in message):
        return "response"
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "Invalid request: method must be a string.")
    if "id" not in message:
        return "notification"
    if not is_id(message["id"]):
        raise RpcError(INVALID_REQUEST, "Invalid request: id must be a string, a number or null.")
    return "request"


def is_id(value: object) -> bool:
    """Tell whether ``value`` may be the id of a request."""
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def params_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return the named parameters of a message.

    Raises:
        RpcError: They are a list or no structure at all.
    """
    params = message.get("params")
    if params is None:
        return {}
    if not is_object(params):
        raise invalid_params("params must be an object")
    return params
