"""The official schema judges every message that aar sends: the SDK's models, and the JSON Schema if it is here."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

_NEWEST = Path("/work/shared/acp-schema/v1.unstable.json")
_RESULTS = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/fork": "ForkSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/prompt": "PromptResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
_SENT = {
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/kill": "KillTerminalRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "elicitation/create": "CreateElicitationRequest",
    "$/cancel_request": "CancelRequestNotification",
}
_NEWER_THAN_THE_SDK = {"notice", "compaction_update", "compaction_summary_chunk"}


@cache
def _newest(name: str) -> Any:
    if not _NEWEST.exists():
        return None
    import jsonschema

    whole = json.loads(_NEWEST.read_text())
    if name not in whole["$defs"]:
        return None
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": whole["$defs"]})


@cache
def _of_sdk(name: str) -> TypeAdapter[Any] | None:
    from acp import schema  # takes a second: only for those who judge

    model = getattr(schema, name, None)
    return None if model is None else TypeAdapter(model)


def judge(name: str, value: Any) -> None:
    """Fail unless ``value`` is of the official type ``name``."""
    validator = _newest(name)
    if validator is not None:
        validator.validate(value)
    kind = value.get("update", {}).get("sessionUpdate")
    model = _of_sdk(name)
    if model is not None and kind not in _NEWER_THAN_THE_SDK:
        model.validate_python(value)
    assert validator is not None or model is not None, name


def judge_sent(message: dict[str, Any]) -> None:
    """Fail unless a request or notification of the agent is one of the protocol."""
    assert message["jsonrpc"] == "2.0"
    judge(_SENT[message["method"]], message["params"])


def judge_answer(method: str, message: dict[str, Any]) -> None:
    """Fail unless an answer is a result of the protocol, or a proper error."""
    assert message["jsonrpc"] == "2.0"
    assert set(message) == {"jsonrpc", "id", "result"} or set(message) == {"jsonrpc", "id", "error"}
    if "result" in message:
        judge(_RESULTS[method], message["result"])
    else:
        judge("Error", message["error"])
