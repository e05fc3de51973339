"""Errors: two families, told apart by who reads them.

``AarError``                   for the caller: one clear sentence that says what to do
├── ``ConfigurationError``     a setting, flag, key or file is wrong; no request was sent (exit 3)
├── ``UsageError``             the command line shows by itself that it is wrong (exit 2)
│   └── ``NotThereError``      what it names is not there, or cannot be used (exit 3)
├── ``ProviderError``          the model's server failed or lied (exit 4)
├── ``StorageError``           a session or another of aar's own files cannot be read or written
├── ``SandboxError``           a wall could not be raised
├── ``McpError``               an MCP server failed
├── ``PlanningError``          a plan is not runnable
└── ``InternalError``          a defect in aar (exit 7)
``ToolFailure``                for the model: becomes a tool result ``Error [<category>]: …``
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from aar.protocol.state import ExitCode


class ErrorKind(StrEnum):
    """What kind of thing went wrong (DESIGN 5)."""

    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    CONTENT_FILTER = "content_filter"
    NETWORK = "network"
    TIMEOUT = "timeout"
    INCOMPLETE_STREAM = "incomplete_stream"
    MALFORMED_RESPONSE = "malformed_response"
    PROVIDER_INTERNAL = "provider_internal"
    UNKNOWN_MODEL = "unknown_model"
    CONFIGURATION = "configuration"
    STORAGE = "storage"
    TOOL = "tool"
    SANDBOX = "sandbox"
    MCP = "mcp"
    PLANNING = "planning"
    INTERNAL = "internal"


RETRYABLE_KINDS = frozenset(
    {
        ErrorKind.RATE_LIMIT,
        ErrorKind.OVERLOADED,
        ErrorKind.NETWORK,
        ErrorKind.TIMEOUT,
        ErrorKind.INCOMPLETE_STREAM,
        ErrorKind.PROVIDER_INTERNAL,
    }
)
"""Kinds of provider errors that may pass when the same request is sent again."""


class ToolCategory(StrEnum):
    """Categories of tool errors, as the model reads them (DESIGN 6)."""

    UNKNOWN_TOOL = "unknown_tool"
    NO_HANDLER = "no_handler"
    INVALID_ARGUMENTS = "invalid_arguments"
    BLOCKED = "blocked"
    DENIED = "denied"
    TIMEOUT = "timeout"
    EXCEPTION = "exception"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    SANDBOX = "sandbox"
    STALE_FILE = "stale_file"
    NOT_FOUND = "not_found"
    AMBIGUOUS = "ambiguous"
    OUTPUT_LIMIT = "output_limit"


class AarError(Exception):
    """An error for the caller: ``str(error)`` is one sentence that says what to do."""

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL


class ConfigurationError(AarError):
    """A setting, flag, key or file is wrong; no request was sent."""

    kind = ErrorKind.CONFIGURATION
    exit_code = ExitCode.CONFIGURATION


class UsageError(AarError):
    """The command line shows by itself that it is wrong, or a person asked for what makes no sense."""

    kind = ErrorKind.CONFIGURATION
    exit_code = ExitCode.USAGE


class NotThereError(UsageError):
    """The command line is well formed, but what it names is not there, is taken or cannot be used."""

    exit_code = ExitCode.CONFIGURATION


class StorageError(AarError):
    """A session or another of aar's own files cannot be read or written."""

    kind = ErrorKind.STORAGE
    exit_code = ExitCode.INTERNAL


class SandboxError(AarError):
    """A wall could not be raised."""

    kind = ErrorKind.SANDBOX
    exit_code = ExitCode.CONFIGURATION


class McpError(AarError):
    """An MCP server failed."""

    kind = ErrorKind.MCP
    exit_code = ExitCode.CONFIGURATION


class PlanningError(AarError):
    """A plan cannot be run as it is."""

    kind = ErrorKind.PLANNING
    exit_code = ExitCode.UNFINISHED


class InternalError(AarError):
    """A defect in aar itself."""


class ProviderError(AarError):
    """The model's server failed, refused or sent something that is no answer.

    Attributes:
        error_kind: What went wrong, from which retries and exit codes follow.
        status: HTTP status, if a response was received.
        retry_after_s: Seconds to wait that the server asked for, if it did.
        request_id: The server's own name for the request, if told.
        detail: More of what the server said, for logs and the error event.
        final: Whether trying again cannot help, although errors of this kind may pass.
    """

    exit_code = ExitCode.PROVIDER

    def __init__(
        self,
        error_kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        detail: str | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.final = final
        self.error_kind = error_kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.detail = detail

    @property
    def retryable(self) -> bool:
        """Whether sending the same request again may succeed."""
        return self.error_kind in RETRYABLE_KINDS and not self.final


class ToolFailure(Exception):  # noqa: N818 - an outcome that the model reads, not a defect
    """A tool's way to tell the model that a call failed, and how to do better.

    Attributes:
        category: One of `ToolCategory`.
        message: One or more sentences for the model, without the ``Error [category]:`` prefix.
    """

    def __init__(self, category: ToolCategory, message: str) -> None:
        super().__init__(message)
        self.category = category
        self.message = message


def error_kind(error: BaseException) -> ErrorKind:
    """Return the kind of any exception; whatever aar did not raise itself is ``internal``."""
    if isinstance(error, ProviderError):
        return error.error_kind
    if isinstance(error, AarError):
        return error.kind
    return ErrorKind.INTERNAL


def tool_error_text(category: ToolCategory, message: str) -> str:
    """Return the text of a failed call as the model sees it (DESIGN 6)."""
    return f"Error [{category}]: {message}"
