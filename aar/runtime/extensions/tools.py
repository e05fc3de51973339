"""Tools that extensions bring: each call goes to the thread of its extension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aar.runtime.extensions.loading import make_manager

if TYPE_CHECKING:
    from aar.extensions.manager import Extension
    from aar.runtime.base import Base
    from aar.tools.registry import ToolRegistry


def add_extension_tools(base: Base, registry: ToolRegistry) -> list[str]:
    """Put the tools of extensions into ``registry``, to be listed; return what went wrong."""

    def nothing(what: str, subject: str) -> str | None:
        return "tools that are listed do nothing"

    manager = make_manager(base)
    manager.wait()
    try:
        for extension in manager.loaded:
            for tool in extension.registered.tools:
                if tool.name not in registry:
                    registry.register(tool.spec(caller_of(extension), nothing))
        return list(manager.problems)
    finally:
        manager.close()


def caller_of(extension: Extension) -> Any:
    """Return what calls a function in the thread of ``extension``, within a time."""

    async def run(function: Callable[..., Any], arguments: Sequence[Any], seconds: float) -> Any:
        from aar.extensions.worker import ExtensionTroubleError
        from aar.protocol.errors import ToolCategory, ToolFailure

        try:
            return await extension.worker.call(function, *arguments, seconds=seconds)
        except ExtensionTroubleError as error:
            raise ToolFailure(
                ToolCategory.TIMEOUT, f"The extension {extension.name} did not answer: {error}."
            ) from None

    return run
