"""Shared by the tests of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aar.protocol.tool import SideEffect, ToolSpec
from aar.safety.policy import SafetyPolicy
from aar.safety.policy_types import Decision
from aar.safety.rules import RuleSet


def tool(name: str, *effects: SideEffect) -> ToolSpec:
    return ToolSpec(name, "A tool.", {"type": "object"}, frozenset(effects), None)


BASH = tool("bash", SideEffect.EXECUTE)
READ = tool("read_file", SideEffect.READ)
WRITE = tool("write_file", SideEffect.WRITE)
PATCH = tool("apply_patch", SideEffect.WRITE)
FETCH = tool("web_fetch", SideEffect.NETWORK)


def policy(workspace: Path, mode: str = "ask", **more: Any) -> SafetyPolicy:
    more.setdefault("wall", "bubblewrap")
    rules = [RuleSet.parse("user", *(more.pop(effect, ()) for effect in ("allow", "ask", "deny")))]
    return SafetyPolicy(mode, workspace, rules=[*rules, *more.pop("layers", [])], **more)  # type: ignore[arg-type]


def check(workspace: Path, command: str, mode: str = "ask", **more: Any) -> Decision:
    return policy(workspace, mode, **more).check_command(command)
