"""What a client may choose for a session: never more than whoever started the server allowed."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from aar.config.schema import PermissionMode
from aar.config.tighten import MODES
from aar.protocol.errors import UsageError
from aar.runtime.base import Base


class Wish(BaseModel):
    """The body of a request for a new session. Everything in it can only make things stricter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str | None = Field(default=None, max_length=500, description="Title of the session.")
    mode: PermissionMode | None = Field(
        default=None, description="Permission mode, no looser than the server's."
    )
    agent: str | None = Field(default=None, description="Name of the agent that works (aar agents list).")
    steps: int | None = Field(default=None, ge=1, description="Model requests of each run, at most.")
    seconds: float | None = Field(default=None, gt=0, description="Seconds of each run, at most.")
    tokens: int | None = Field(default=None, ge=1, description="Tokens of each run, at most.")
    usd: float | None = Field(default=None, gt=0, description="US dollars of each run, at most.")
    tools: list[str] | None = Field(default=None, description="Names of the tools that the model gets.")


def runtime_options(
    wish: Wish, options: dict[str, Any], base: Base, ceiling: PermissionMode | None
) -> dict[str, Any]:
    """Return ``options`` for `open_runtime`, tightened as the client wishes.

    Args:
        wish: The client's.
        options: Those of the server.
        base: The settings that they lead to.
        ceiling: The loosest mode that the server allows; ``None``: the door's own choice is the loosest.

    Raises:
        UsageError: Something would be looser.
    """
    sets: list[str] = []
    for name in ("steps", "seconds", "tokens", "usd"):
        wanted, held = getattr(wish, name), getattr(base.config.limits, name)
        if wanted is None:
            continue
        if held and wanted > held:
            raise UsageError(f"{name}: this server allows {held:g} at most.")
        sets.append(f"limits.{name}={wanted}")
    if wish.tools is not None:
        enabled = base.config.tools.enabled
        more = [name for name in wish.tools if enabled is not None and name not in enabled]
        if more:
            raise UsageError(f"tools: this server does not offer {', '.join(more)}.")
        sets.append(f"tools.enabled={json.dumps(wish.tools)}")
    if wish.mode is not None:
        demand_no_looser(wish.mode, ceiling)
        sets.append(f"permissions.mode={wish.mode}")
    # Behind what the server was started with, so that it counts.
    return {
        **options,
        "sets": (*options.get("sets", ()), *sets),
        "agent": wish.agent or options.get("agent"),
    }


def demand_no_looser(mode: PermissionMode, ceiling: PermissionMode | None) -> None:
    """Raise `UsageError` unless ``mode`` is within ``ceiling``."""
    if ceiling is not None and MODES.index(mode) > MODES.index(ceiling):
        raise UsageError(f"mode: this server allows {ceiling} at most; --mode of aar serve says so.")
