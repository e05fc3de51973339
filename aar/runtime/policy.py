"""The safety policy of a workspace, from configuration, mode and wall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aar.config.schema import PermissionMode
from aar.core.approvals import Scope
from aar.runtime.base import Base
from aar.safety.policy import RuleSet, SafetyPolicy
from aar.safety.rules import Layer
from aar.safety.spawn import ProcessSpawner


def make_policy(base: Base, mode: PermissionMode, wall: str, roots: Sequence[Path] = ()) -> SafetyPolicy:
    """Return the policy for a workspace under ``mode`` behind ``wall``.

    Raises:
        ConfigurationError: A rule is not understood, or the mode needs a wall that is not there.
    """
    layers = [
        RuleSet.parse(_rule_layer(layer), **{kind: tuple(rules) for kind, rules in kinds.items()})
        for layer, kinds in base.loaded.rule_layers.items()
    ]
    sandbox = base.config.sandbox
    return SafetyPolicy(
        mode,
        base.workspace,
        rules=layers,
        extra_roots=(*roots, *(Path(path).expanduser() for path in sandbox.writable)),
        wall=wall,
        readable=sandbox.readable,
        secrets=sandbox.secrets,
        protected=sandbox.protected,
    )


def _rule_layer(layer: str) -> Layer:
    """Return the layer of policy for a layer of the configuration."""
    if layer in ("managed", "project"):
        return "managed" if layer == "managed" else "project"
    return "user"


def save_rule(policy: SafetyPolicy, rule: str, scope: Scope) -> None:
    """Keep a rule that an approval asked for, for this session."""
    policy.rules = (*policy.rules, RuleSet.parse("session", allow=(rule,)))


def choose_mode(base: Base, spawner: ProcessSpawner, interactive: bool, notices: list[str]) -> PermissionMode:
    """Return the permission mode: as set, else ``ask`` with a person, ``auto`` where a wall holds."""
    from aar.config.tighten import stricter_mode

    mode = base.config.permissions.mode
    if mode is not None:
        return mode
    if interactive:
        return stricter_mode("ask", base.loaded.mode_ceiling)
    if spawner.status().enforced:
        return stricter_mode("auto", base.loaded.mode_ceiling)
    reasons = " ".join(spawner.status().reasons)
    notices.append(f"No sandbox holds here, so calls that need approval will be denied. {reasons}")
    return stricter_mode("ask", base.loaded.mode_ceiling)
