"""The answer to ``initialize``: version, capabilities, ways to sign in. Imports nothing heavy."""

from __future__ import annotations

from aar import __version__
from aar.transports.acp.messages import invalid_params, object_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL_VERSION = 1
AUTH_CONFIGURED = "configured"
AUTH_TERMINAL = "key"


class ClientCapabilities:
    """What the client said it can do; whatever it left out or wrote wrongly it cannot.

    Attributes:
        read_files: ``fs/read_text_file``.
        write_files: ``fs/write_text_file``.
        terminal: ``terminal/create`` and what belongs to it.
        forms: ``elicitation/create`` with a form.
        notices: Updates of kind ``notice``.
        compaction: Updates of kind ``compaction_update``.
        terminal_auth: Ways to sign in that need a terminal.
        name: What the client calls itself.

    Args:
        params: Of ``initialize``.
        here: Whether the client is on this machine, so that its files and terminals are those of aar.
    """

    def __init__(self, params: dict[str, Any] | None = None, *, here: bool = True) -> None:
        params = params or {}
        told = object_of(params.get("clientCapabilities"))
        files, session = object_of(told.get("fs")), object_of(told.get("session"))
        self.read_files = here and files.get("readTextFile") is True
        self.write_files = here and files.get("writeTextFile") is True
        self.terminal = here and told.get("terminal") is True
        self.forms = isinstance(object_of(told.get("elicitation")).get("form"), dict)
        self.notices = isinstance(session.get("notices"), dict)
        self.compaction = isinstance(session.get("compaction"), dict)
        self.terminal_auth = object_of(told.get("auth")).get("terminal") is True
        name = object_of(params.get("clientInfo")).get("name")
        self.name = name if isinstance(name, str) else ""


def initialize_result(params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``initialize``.

    Raises:
        RpcError: ``protocolVersion`` is missing or no version.
    """
    version = params.get("protocolVersion")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= 65535:
        raise invalid_params("protocolVersion must be an integer from 0 to 65535")
    return {
        # Version 1 is all that is spoken; whoever wants another one hears that and may leave.
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "aar", "title": "aar", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {
                "list": {},
                "resume": {},
                "close": {},
                "delete": {},
                "fork": {},
                "additionalDirectories": {},
            },
            "auth": {},
        },
        "authMethods": _auth_methods(ClientCapabilities(params)),
    }


def _auth_methods(client: ClientCapabilities) -> list[dict[str, Any]]:
    methods: list[dict[str, Any]] = [
        {
            "id": AUTH_CONFIGURED,
            "name": "Configured model",
            "description": "The model and key from aar's configuration, `aar auth` or the environment.",
        }
    ]
    if client.terminal_auth:
        methods.append(
            {
                "id": AUTH_TERMINAL,
                "name": "Enter a key",
                "description": "Asks for a provider's key in a terminal and keeps it like `aar auth set`.",
                "type": "terminal",
                "args": ["--login"],
            }
        )
    return methods
