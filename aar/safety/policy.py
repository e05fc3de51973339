"""`SafetyPolicy`: may this call run, must somebody be asked, or is it refused (DESIGN 8).

Pure: nothing is run and nothing is written; the disk is only asked where links lead. The kernel is the wall,
this is the comfort in front of it, and the one place where the mode table stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from aar.config.schema import PermissionMode
from aar.config.tighten import stricter_mode
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern
from aar.protocol.tool import SideEffect, ToolSpec
from aar.safety.paths import is_protected, is_secret, matches
from aar.safety.policy_types import Answer, Column, Decision, Verdict, explain, strictest
from aar.safety.rule_proposals import propose_path_rule
from aar.safety.rules import Effect, Rule, RuleRef, RuleSet, normal_host
from aar.safety.shell_hard_stops import Places, normal

__all__ = ["Decision", "RuleSet", "SafetyPolicy", "explain", "patch_paths"]

Scope = Literal["once", "session", "project", "user"]
_OWN_TOOLS = frozenset({"bash_output", "kill_shell", "read_output"})
"""Tools that only touch what a decided call has started or stored."""
_PATCH_PATH = late_pattern(
    r"^(?:\*\*\* (?:(?:Add|Update|Delete) File|Move to): |(?:---|\+\+\+) (?:[ab]/)?|rename (?:from|to) "
    r")([^\t\r\n]+)",
    re.MULTILINE,
)
_COLUMNS: tuple[Column, ...] = ("read", "edit", "build", "command", "leaves", "hard")
_ANSWERS: dict[PermissionMode, str] = {
    "plan": "allow deny deny deny deny deny",
    "ask": "allow ask ask ask ask ask",
    "edit": "allow allow allow ask ask ask",
    "auto": "allow allow allow allow ask ask",
    "unsafe": "allow allow allow allow allow ask",
}
_TABLE: dict[PermissionMode, dict[Column, Answer]] = {
    mode: dict(zip(_COLUMNS, cast("list[Answer]", row.split()), strict=True))
    for mode, row in _ANSWERS.items()
}
"""The table of DESIGN 8; a column for build and test commands of its own."""


def _check_mode(mode: PermissionMode, wall: str) -> None:
    if mode not in _TABLE:
        raise ConfigurationError(f"Permission mode {mode!r} is not known; use one of {', '.join(_TABLE)}.")
    if mode == "auto" and wall == "none":
        raise ConfigurationError(
            "Mode auto needs an enforced sandbox and there is none here: install bubblewrap, use another "
            "mode (--mode ask or edit), or see why with `aar sandbox status`."
        )


class SafetyPolicy:
    """The rules, the mode and the places of one session, as one function of a call.

    Args:
        mode: Permission mode.
        rules: Layers in any order; a deny of any layer comes before an ask of any, before an allow.
        workspace: Root of the project.
        extra_roots: Folders that count as the workspace.
        wall: Name of the wall around commands; ``none`` when there is none.
        headless: Whether nobody can answer.
        readable: Secrets that are unlocked (``[sandbox] readable``).
        secrets: More secrets (``[sandbox] secrets``).
        protected: More protected paths (``[sandbox] protected``).
        network: Whether commands reach hosts through the wall (``[sandbox] allow_domains``).
        scopes: For how long an answer can hold; more than ``once`` and ``session`` where rules are saved.

    Attributes:
        shell_folder: Returns where the next command of a kept shell runs; ``None``: in the workspace.

    Raises:
        ConfigurationError: ``auto`` without a wall.
    """

    def __init__(
        self,
        mode: PermissionMode,
        workspace: Path,
        *,
        rules: Iterable[RuleSet] = (),
        extra_roots: Sequence[Path] = (),
        wall: str = "none",
        headless: bool = False,
        readable: Sequence[str] = (),
        secrets: Sequence[str] = (),
        protected: Sequence[str] = (),
        network: bool = False,
        scopes: tuple[Scope, ...] = ("once", "session"),
    ) -> None:
        _check_mode(mode, wall)
        self._mode: PermissionMode = mode
        self.workspace = normal(workspace)
        self.roots = (self.workspace, *(normal(root) for root in extra_roots))
        self._rules = tuple(rules)
        self._wall = wall
        self.headless = headless
        self.scopes = scopes
        self._network_open = network
        self._readable, self._secrets, self._protected = tuple(readable), tuple(secrets), tuple(protected)
        self._above: tuple[SafetyPolicy, PermissionMode | None] | None = None
        self._in_copy = False
        self.shell_folder: Callable[[], Path] | None = None

    def narrowed(self, mode: PermissionMode | None = None, *, workspace: Path | None = None) -> SafetyPolicy:
        """Return a policy for an agent below: never looser than this one, also when this one changes.

        Args:
            mode: The loosest mode of that agent; ``None``: this policy's.
            workspace: Root of the copy of the project in which that agent works, and the only place that it
                may change; ``None``: this policy's places. Edits in a copy do not ask: the question comes
                when they are made in the project.
        """
        below = copy(self)
        if workspace is not None:
            below.workspace = normal(workspace)
            below.roots = (below.workspace,)
            below._in_copy = True
        below._above = (self, mode)
        below.shell_folder = None
        return below

    @property
    def base(self) -> SafetyPolicy:
        """The policy on which the others stand: what is allowed for the session is kept there."""
        return self if self._above is None else self._above[0].base

    @property
    def mode(self) -> PermissionMode:
        """The permission mode; below another policy the stricter one of the two."""
        if self._above is None:
            return self._mode
        above, loosest = self._above
        return stricter_mode(above.mode, loosest)

    @property
    def wall(self) -> str:
        """Name of the wall around commands."""
        return self.base._wall

    @property
    def rules(self) -> tuple[RuleSet, ...]:
        """The rules of all layers; one list for a policy and those below it."""
        return self.base._rules

    @rules.setter
    def rules(self, rules: tuple[RuleSet, ...]) -> None:
        self.base._rules = rules

    def change_mode(self, mode: PermissionMode, wall: str) -> None:
        """Judge by another mode, behind ``wall``, from the next call on.

        Raises:
            ConfigurationError: ``auto`` without a wall.
        """
        _check_mode(mode, wall)
        self.base._mode, self.base._wall = mode, wall

    # --- what others ask ---------------------------------------------------------------------------------

    @property
    def network(self) -> bool:
        """Whether commands can reach other hosts: through the wall, or because there is none."""
        return self._network_open or self.wall == "none"

    def decide(
        self,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        *,
        wall: str | None = None,
        outside: bool = False,
    ) -> Decision:
        """Return whether a call may run.

        Args:
            tool: Which tool.
            arguments: As a JSON object.
            wall: The wall that would hold, if not the policy's own.
            outside: Whether text from outside came in before; what reaches out and changes things asks then,
                unless a rule of the user's own names exactly the tool.
        """
        decision = self._decide(tool, arguments, enforced=(self.wall if wall is None else wall) != "none")
        if not outside or decision.decision != "allow" or not self._reaches_and_changes(tool, arguments):
            return decision
        if self._named_by_user(tool, decision):
            return decision
        reason = "text from outside came in before this call, which reaches out and may change things"
        verdict = self.final(Verdict("ask", (reason,), by="policy"))
        return replace(
            decision,
            decision=verdict.decision,
            reasons=verdict.reasons,
            rule=None,
            proposed_rule=None,
            by="policy",
            by_words=False,
        )

    def _named_by_user(self, tool: ToolSpec, decision: Decision) -> bool:
        """Whether a rule of the user's own names exactly this foreign tool: their answer to the question."""
        rule = decision.rule
        return (
            SideEffect.EXTERNAL in tool.side_effects
            and rule is not None
            and rule.text == tool.name
            and rule.layer != "project"
        )

    def _reaches_and_changes(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> bool:
        effects = tool.side_effects
        if SideEffect.EXTERNAL in effects or (tool.name.startswith("mcp__") and not effects):
            return True
        if tool.name == "bash":
            from aar.safety.shell_network import reaches_network

            return self.network and reaches_network(str(arguments.get("command", "")))
        return SideEffect.NETWORK in effects and bool(effects & {SideEffect.WRITE, SideEffect.EXECUTE})

    def _decide(self, tool: ToolSpec, arguments: Mapping[str, Any], *, enforced: bool) -> Decision:
        if tool.name == "bash":
            folder = self.workspace if self.shell_folder is None else normal(self.shell_folder())
            return self._judge_command(str(arguments.get("command", "")), folder, enforced=enforced)
        verdict = self._tool_rules(tool.name, self._judge(tool, arguments))
        verdict = self.final(verdict)
        proposed = (
            self._propose(tool, arguments) if verdict.decision == "ask" and not verdict.hard_stop else None
        )
        return Decision(
            verdict.decision, verdict.rule, verdict.reasons, (), proposed, verdict.hard_stop, verdict.by
        )

    def check_command(self, command: str, *, wall: str | None = None) -> Decision:
        """Return the decision for a shell command, as ``aar policy check`` does."""
        enforced = (self.wall if wall is None else wall) != "none"
        return self._judge_command(command, self.workspace, enforced=enforced)

    def _judge_command(self, command: str, folder: Path, *, enforced: bool) -> Decision:
        # The shell's grammar is read with the first command, not at the start.
        from aar.safety.shell_policy import ShellJudge

        decision = ShellJudge(self, enforced=enforced, folder=folder).decide(command)
        if folder == self.workspace or decision.decision == "allow":
            return decision
        return replace(decision, reasons=(*decision.reasons, f"the shell is in {self.shown(folder)}"))

    # --- shared with the judge of shell commands -----------------------------------------------------------

    def table(self, column: Column, *reasons: str) -> Verdict:
        """Return what the mode says for a column of its table."""
        answer = _TABLE[self.mode][column]
        if answer == "deny" and self.mode == "plan":
            reasons = (*reasons, "mode plan only reads")
        return Verdict(
            answer, reasons, hard_stop=column == "hard", by="policy" if column == "hard" else "mode"
        )

    def final(self, verdict: Verdict) -> Verdict:
        """Nobody answers in a headless ``auto`` or ``unsafe`` run: what would ask is denied there."""
        if verdict.decision == "ask" and self.headless and self.mode in {"auto", "unsafe"}:
            reasons = (*verdict.reasons, "nobody is there to ask")
            return Verdict("deny", reasons, verdict.rule, verdict.hard_stop, verdict.by)
        return verdict

    def matching(self, effect: Effect, test: Callable[[Rule], bool]) -> tuple[Rule, RuleRef] | None:
        """Return the first rule with ``effect`` for which ``test(rule)`` is true."""
        for layer in self.rules:
            for rule in layer.of(effect):
                if test(rule):
                    return rule, RuleRef(rule.text, layer.layer)
        return None

    def inside(self, path: Path) -> bool:
        """Whether ``path`` (resolved) is in the workspace or an added folder."""
        return any(path.is_relative_to(root) for root in self.roots)

    def secret(self, path: Path) -> bool:
        """Whether ``path`` may not be read."""
        if not is_secret(path, extra=self._secrets):
            return False
        if any(matches(pattern, path) for pattern in self._readable):
            return False
        # One rule that names exactly this file is the user's key to it; project rules hold no keys.
        return not any(
            rule.exact and rule.matches_path("read", path, self.workspace)
            for layer in self.rules
            if layer.layer in {"user", "session"}
            for rule in layer.allow
        )

    def path(self, kind: Literal["read", "write"], path: Path) -> Verdict:
        """Judge reading or writing the resolved ``path``."""
        shown = self.shown(path)
        if kind == "read" and self.secret(path):
            key = propose_path_rule("read", path, self.workspace)
            reason = f"{shown} holds secrets; unlock it with [sandbox] readable or a user rule {key}"
            return Verdict("deny", (reason,), by="policy")
        for effect in ("deny", "ask"):
            found = self.matching(effect, lambda rule: rule.matches_path(kind, path, self.workspace))
            if found:
                return Verdict(effect, (f"rule {found[1].text} for {shown}",), found[1], by="policy")
        if kind == "write" and self.protected(path):
            verdict = self.table(
                "leaves", f"{shown} is run or obeyed by other programs later, so writing it asks"
            )
            return Verdict(verdict.decision, verdict.reasons, by="policy")
        found = self.matching("allow", lambda rule: rule.matches_path(kind, path, self.workspace))
        if found and self.mode != "plan":
            return Verdict("allow", (), found[1], by="policy")
        if not self.inside(path):
            return self.table("leaves", f"{path} is outside of the workspace")
        if kind == "write" and self._in_copy and self.mode == "ask":
            return Verdict("allow")
        return self.table("read" if kind == "read" else "edit")

    def shown(self, path: Path) -> str:
        """Return ``path`` relative to the workspace where it lies inside."""
        return (
            path.relative_to(self.workspace).as_posix() if path.is_relative_to(self.workspace) else str(path)
        )

    def protected(self, path: Path, *, by_wall: bool = False) -> bool:
        """Whether writing the resolved ``path`` asks.

        Args:
            path: Any file or folder.
            by_wall: Only what the wall keeps from commands as well: not all that is in ``.git``.
        """
        root = next((root for root in self.roots if path.is_relative_to(root)), None)
        return root is not None and is_protected(
            path.relative_to(root), extra=self._protected, whole_git=not by_wall
        )

    # --- tools other than bash -----------------------------------------------------------------------------

    def _tool_rules(self, name: str, verdict: Verdict) -> Verdict:
        """Rules on a tool as a whole; an allow lifts only what the mode's own table said."""
        for effect in ("deny", "ask"):
            found = self.matching(effect, lambda rule: rule.matches_tool(name))
            if found:
                return strictest(
                    [verdict, Verdict(effect, (f"rule {found[1].text}",), found[1], by="policy")]
                )
        found = self.matching("allow", lambda rule: rule.matches_tool(name))
        if found and verdict.by == "mode" and self.mode != "plan":
            return Verdict("allow", (), found[1], by="policy")
        return verdict

    def _judge(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> Verdict:
        effects = tool.side_effects
        foreign = tool.name.startswith("mcp__") and not effects
        if SideEffect.EXTERNAL in effects or foreign:
            return self.table("leaves", f"{tool.name} may do anything: its effects are not known to aar")
        if tool.name in _OWN_TOOLS or not effects:
            return Verdict("allow")
        if SideEffect.NETWORK in effects:
            return self._network(tool.name, arguments)
        if SideEffect.EXECUTE in effects:
            return self.table("command" if self.wall != "none" else "leaves", f"{tool.name} runs commands")
        paths = self._paths(tool, arguments)
        if paths is None:
            return self.table("leaves", "which files it changes cannot be told")
        kind: Literal["read", "write"] = "write" if SideEffect.WRITE in effects else "read"
        if not paths:
            return self.table("edit" if kind == "write" else "read")
        return strictest(self.path(kind, path) for path in paths)

    def _paths(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> list[Path] | None:
        if tool.name == "apply_patch":
            texts = patch_paths(str(arguments.get("patch", "")))
            if not texts:
                return None
        else:
            texts = [value for key in ("path", "file_path") if isinstance(value := arguments.get(key), str)]
        places = Places(self.workspace, normal(Path.home()))
        return [path for text in texts for path in places.candidates(text)]

    def _network(self, name: str, arguments: Mapping[str, Any]) -> Verdict:
        url = arguments.get("url")
        if not isinstance(url, str):
            return self.table("leaves", f"{name} uses the network")
        host = normal_host(url)
        if host is None:
            return Verdict("deny", ("the address is not a sound http(s) URL",), by="policy")
        for effect in ("deny", "ask", "allow"):
            found = self.matching(effect, lambda rule: rule.matches_host(host))
            if found and not (effect == "allow" and self.mode == "plan"):
                reasons = () if effect == "allow" else (f"rule {found[1].text}",)
                return Verdict(effect, reasons, found[1], by="policy")
        return self.table("leaves", f"{host} is reached over the network")

    def _propose(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> str | None:
        if SideEffect.NETWORK in tool.side_effects and isinstance(arguments.get("url"), str):
            host = normal_host(arguments["url"])
            return f"web_fetch(domain:{host})" if host and tool.name == "web_fetch" else None
        if SideEffect.EXTERNAL in tool.side_effects or SideEffect.EXECUTE in tool.side_effects:
            return tool.name
        paths = self._paths(tool, arguments)
        if not paths or len(paths) > 1 or self.protected(paths[0]):
            return None
        return propose_path_rule(
            "write" if SideEffect.WRITE in tool.side_effects else "read", paths[0], self.workspace
        )


def patch_paths(patch: str) -> list[str]:
    """Return every path that a patch names, in either of the two usual formats."""
    found = (match[1].strip() for match in _PATCH_PATH.finditer(patch))
    return [path for path in dict.fromkeys(found) if path and path != "/dev/null"]
