"""The safety policy of a workspace, from configuration, mode and wall."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aar.config.saved_rules import SavedRules, save_user_rule
from aar.config.schema import Config, PermissionMode
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern
from aar.runtime.base import Base
from aar.safety.policy import RuleSet, SafetyPolicy
from aar.safety.rule_proposals import too_broad
from aar.safety.rules import Layer, Rule, check_examples, normal_host, parse_rule

if TYPE_CHECKING:
    from aar.core.approvals import Scope
    from aar.safety.spawn import ProcessSpawner

_LOOPBACK = late_pattern(r"localhost|127\.[\d.]+|::1")
"""Servers of this machine: a wall's own network does not lead to them anyway."""


def make_policy(
    base: Base, mode: PermissionMode, wall: str, roots: Sequence[Path] = (), *, headless: bool = False
) -> SafetyPolicy:
    """Return the policy for a workspace under ``mode`` behind ``wall``; ``headless``: nobody can answer.

    Raises:
        ConfigurationError: A rule is not understood or not what its examples say, or the mode needs a wall
            that is not there.
    """
    layers = [
        RuleSet.parse(_rule_layer(layer), **{kind: tuple(rules) for kind, rules in kinds.items()})
        for layer, kinds in base.loaded.rule_layers.items()
    ]
    saved = _saved_rules(base)
    if saved is not None:
        layers.append(saved)
    for rule, examples in base.config.permissions.examples.items():
        check_examples(rule, examples.match, examples.not_match)
    sandbox = base.config.sandbox
    return SafetyPolicy(
        mode,
        base.workspace,
        rules=layers,
        extra_roots=(*roots, *base.writable),
        wall=wall,
        headless=headless,
        readable=sandbox.readable,
        secrets=sandbox.secrets,
        protected=sandbox.protected,
        network=bool(sandbox.allow_domains),
        scopes=base.scopes,
    )


def _saved_rules(base: Base) -> RuleSet | None:
    """Return what the user saved for this project; a rule of an older version is passed over."""
    rules: list[Rule] = []
    for text in SavedRules(base.paths, base.workspace).load():
        with suppress(ConfigurationError):
            rules.append(parse_rule(text))
    return RuleSet("project", allow=tuple(rules)) if rules else None


def _rule_layer(layer: str) -> Layer:
    """Return the layer of policy for a layer of the configuration."""
    if layer in ("managed", "project"):
        return "managed" if layer == "managed" else "project"
    return "user"


def save_rule(base: Base, policy: SafetyPolicy, rule: str, scope: Scope) -> None:
    """Keep a rule that an answer asked for: it acts at once, and where it was saved in later sessions too.

    Raises:
        ConfigurationError: It is not a rule, or one that is as good as everything.
        StorageError: It cannot be written.
    """
    why = too_broad(rule)
    if why is not None:
        raise ConfigurationError(f"This rule is not saved: {why}. Make it narrower, or allow this once.")
    layer: Layer = "session" if scope in ("once", "session") else scope
    added = RuleSet.parse(layer, allow=(rule,))
    if scope == "project":
        SavedRules(base.paths, base.workspace).add(rule)
    elif scope == "user":
        save_user_rule(base.paths, rule)
    policy.rules = (*policy.rules, added)


def model_hosts(config: Config, base_url: str | None = None) -> tuple[str, ...]:
    """Return the hosts of model servers that are configured: commands never reach them (SECURITY T19)."""
    urls = [base_url, *(provider.base_url for provider in config.providers.values())]
    found = (normal_host(url) for url in urls if url)
    return tuple(dict.fromkeys(host for host in found if host and not _LOOPBACK.fullmatch(host)))


def existing_folder(path: Path, flag: str = "--add-dir") -> Path:
    """Return a folder that a flag names, resolved.

    Raises:
        ConfigurationError: There is no such folder.
    """
    if not path.expanduser().is_dir():
        raise ConfigurationError(f"{flag} {path}: there is no such folder.")
    return path.expanduser().resolve()


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
