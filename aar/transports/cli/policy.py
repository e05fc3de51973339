"""``aar policy``: what would be allowed, asked or denied, and why."""

from __future__ import annotations

import json

import click

from aar.config.saved_rules import SavedRules
from aar.config.schema import PermissionMode
from aar.protocol.errors import ConfigurationError
from aar.runtime import make_policy, open_base
from aar.safety.policy import Decision
from aar.safety.policy import explain as explain_decision
from aar.safety.sanitize import sanitize
from aar.transports.cli.groups import NearestGroup


@click.group(cls=NearestGroup)
def policy() -> None:
    """Tell what may run, and why."""


_MODE = click.Choice(["plan", "ask", "edit", "auto", "unsafe"])


def _judge(mode: PermissionMode | None, wall: str, command: str) -> tuple[PermissionMode, Decision]:
    base = open_base(mode=mode)
    chosen = base.config.permissions.mode or "ask"
    return chosen, make_policy(base, chosen, wall).check_command(command)


@policy.command()
@click.option("--mode", type=_MODE, help="Permission mode; by default the configured one, else ask.")
@click.option("--wall", default="landlock", show_default=True, help="The wall to assume; none: no wall.")
@click.argument("command", metavar="CMD")
def check(mode: PermissionMode | None, wall: str, command: str) -> None:
    """Print as JSON whether the shell command CMD may run."""
    _, decision = _judge(mode, wall, command)
    click.echo(json.dumps(explain_decision(decision), ensure_ascii=False))


@policy.command()
@click.option("--mode", type=_MODE, help="Permission mode; by default the configured one, else ask.")
@click.option("--wall", default="landlock", show_default=True, help="The wall to assume; none: no wall.")
@click.argument("command", metavar="CMD")
def explain(mode: PermissionMode | None, wall: str, command: str) -> None:
    """Tell in words whether the shell command CMD may run."""
    chosen, decision = _judge(mode, wall, command)
    rule = f" by the rule {decision.rule.text} ({decision.rule.layer})" if decision.rule else ""
    click.echo(f"{decision.decision}{rule} in mode {chosen}")
    for reason in decision.reasons:
        click.echo(f"  {reason}")
    for part in decision.commands:
        click.echo(f"  {part.decision}: {' '.join(part.argv)}")


@policy.command("list")
def list_() -> None:
    """List the rules that hold here, layer by layer."""
    base = open_base()
    layers = base.loaded.rule_layers
    saved = SavedRules(base.paths, base.workspace).load()
    if not layers and not saved:
        click.echo("There are no rules; the mode's table decides (docs/safety.md).")
    for layer, kinds in layers.items():
        for kind, rules in kinds.items():
            for rule in rules:
                click.echo(sanitize(f"{layer}  {kind}  {rule}", keep_newlines=False))
    for rule in saved:
        click.echo(sanitize(f"project (saved by you)  allow  {rule}", keep_newlines=False))


@policy.command()
@click.argument("rule")
def forget(rule: str) -> int:
    """Take back RULE, which an answer saved for this project."""
    base = open_base()
    if SavedRules(base.paths, base.workspace).remove(rule):
        click.echo(f"{sanitize(rule, keep_newlines=False)} does not hold any more.")
        return 0
    raise ConfigurationError(
        f"No rule {rule!r} was saved for {base.workspace}; `aar policy list` shows them."
    )
