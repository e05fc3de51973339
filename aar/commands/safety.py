"""What may run: mode, rules, wall."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import get_args

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Table,
    Text,
    starting_with,
)
from aar.config.schema import PermissionMode
from aar.protocol.errors import UsageError
from aar.safety.policy import Decision, SafetyPolicy
from aar.safety.rules import Effect, Rule, RuleSet

MODES = {
    "plan": "reads only; every change is refused",
    "ask": "asks before edits and commands",
    "edit": "edits unasked, asks before commands that do not build or test",
    "auto": "edits and commands run inside the wall; asks for what would leave it",
    "unsafe": "no wall; only as a flag at the start",
}
_EFFECTS: tuple[Effect, ...] = ("deny", "ask", "allow")


async def _mode(context: Context, argument: str) -> Result:
    """Show the modes, or take one."""
    now = context.conversation.mode
    if not argument:
        items = tuple(
            ChoiceItem(name, f"/mode {name}", MODES[name], name == now) for name in get_args(PermissionMode)
        )
        return Choice("What may run without a question?", items)
    context.conversation.set_mode(argument)
    return Text(f"Mode {argument}: {MODES[argument]}.")


# --- rules -----------------------------------------------------------------------------------------------


def _policy(context: Context) -> SafetyPolicy:
    return context.conversation.agent.executor.policy


async def _permissions(context: Context, argument: str) -> Result:
    """List the rules, add one for this session, or take one of this session back."""
    word, _, rest = argument.partition(" ")
    rule = rest.strip()
    if word in ("allow", "ask", "deny"):
        if not rule:
            raise UsageError(f"Say the rule: /permissions {word} 'bash(npm test *)'.")
        _add(_policy(context), word, _unquoted(rule))
        return Text(f"{word.capitalize()} `{_unquoted(rule)}`, until this session is closed.")
    if word == "remove":
        if not rule:
            return _removable(context)
        return _remove(context, _unquoted(rule))
    if argument:
        raise UsageError("/permissions takes allow RULE, ask RULE, deny RULE, remove RULE, or nothing.")
    rows = [
        (layer.layer, effect, one.text)
        for layer in _policy(context).rules
        for effect in _EFFECTS
        for one in layer.of(effect)
    ]
    note = (
        f"Mode {_policy(context).mode} decides what no rule names. deny comes before ask, ask before allow."
    )
    if not rows:
        return Text(f"There are no rules. {note}")
    return Table("Rules", ("layer", "effect", "rule"), tuple(rows), note)


def _unquoted(rule: str) -> str:
    return rule[1:-1] if len(rule) > 1 and rule[0] == rule[-1] and rule[0] in "'\"" else rule


def _add(policy: SafetyPolicy, effect: Effect, rule: str) -> None:
    policy.rules = (*policy.rules, RuleSet.parse("session", **{effect: (rule,)}))


def _removable(context: Context) -> Result:
    items = tuple(
        ChoiceItem(f"{effect} {one.text}", f"/permissions remove {one.text}")
        for layer in _policy(context).rules
        if layer.layer == "session"
        for effect in _EFFECTS
        for one in layer.of(effect)
    )
    if not items:
        return Text("This session has no rules of its own; others stand in the config (`aar config path`).")
    return Choice("Which rule of this session should go?", items)


def _remove(context: Context, text: str) -> Result:
    policy, removed = _policy(context), 0
    kept: list[RuleSet] = []
    for layer in policy.rules:
        if layer.layer != "session":
            kept.append(layer)
            continue
        left = {effect: _without(layer.of(effect), text) for effect in _EFFECTS}
        removed += sum(len(layer.of(effect)) - len(left[effect]) for effect in _EFFECTS)
        if any(left.values()):
            kept.append(RuleSet("session", left["allow"], left["ask"], left["deny"]))
    if not removed:
        where = next((one.layer for one in policy.rules for effect in _EFFECTS
                      for rule in one.of(effect) if rule.text == text), None)  # fmt: skip
        if where is not None:
            return Failure(f"{text} comes from the {where} settings; change it there (`aar config path`).")
        return Failure(f"This session has no rule {text}; /permissions lists the rules.")
    policy.rules = tuple(kept)
    return Text(f"`{text}` does not hold any more.")


def _without(rules: Sequence[Rule], text: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.text != text)


async def _judge(context: Context, argument: str) -> Result:
    """Tell whether a shell command may run now, and why."""
    if not argument:
        raise UsageError("Say the command: /policy git push origin main.")
    return Text(
        describe_decision(argument, _policy(context).check_command(argument), context.conversation.mode)
    )


def describe_decision(command: str, decision: Decision, mode: str) -> str:
    """Return in words how a command was judged."""
    by = f" by the rule `{decision.rule.text}` ({decision.rule.layer})" if decision.rule else ""
    words = {"allow": "may run unasked", "ask": "would be asked for", "deny": "would be refused"}
    lines = [f"`{command}` **{words[decision.decision]}**{by or f' in mode {mode}'}."]
    lines += [f"- {reason}" for reason in decision.reasons]
    if len(decision.commands) > 1:
        lines += [f"- {part.decision}: `{' '.join(part.argv)}`" for part in decision.commands]
    if decision.hard_stop:
        lines.append("- This is a hard stop: no rule lifts it.")
    return "\n".join(lines)


# --- the wall --------------------------------------------------------------------------------------------


async def _sandbox(context: Context, argument: str) -> Result:
    """Show the wall, or open the way to a host."""
    spawner = context.runtime.spawner
    word, _, host = argument.partition(" ")
    if word == "allow" and host.strip():
        spawner.allow_domain(host.strip())
        return Text(f"Commands can reach {host.strip()} until this session is closed.")
    if argument:
        raise UsageError("/sandbox takes allow HOST, or nothing.")
    if context.conversation.mode == "unsafe":
        return Text("Mode unsafe: there is no wall around commands.")
    status = await asyncio.to_thread(spawner.status)
    rows = [("wall", status.name if status.enforced else f"{status.name}: nothing is held back")]
    rows += [("covers", text) for text in status.covers]
    rows += [("does not cover", text) for text in status.gaps]
    rows += [("not taken", text) for text in status.reasons]
    rows += [("allowed host", str(rule)) for rule in spawner.egress.domains.rules]
    return Table("The wall around commands", (), tuple(rows), "/sandbox allow HOST opens the way to a host.")


def _complete_permissions(context: Context, text: str) -> Sequence[str]:
    word, space, rest = text.partition(" ")
    if not space:
        return starting_with(("allow", "ask", "deny", "remove"), word)
    if word != "remove":
        return ()
    rules = [
        one.text
        for layer in _policy(context).rules
        if layer.layer == "session"
        for effect in _EFFECTS
        for one in layer.of(effect)
    ]
    return [f"remove {rule}" for rule in starting_with(rules, rest)]


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("mode", "Choose what may run without a question.", _mode, usage="[plan | ask | edit | auto]",
                group="safety", example="/mode edit",
                complete=lambda context, text: starting_with([*MODES][:-1], text)),
        Command("permissions", "List the rules; add or remove rules of this session.", _permissions,
                usage="[allow|ask|deny|remove RULE]", group="safety", aliases=("rules",),
                complete=_complete_permissions, example="/permissions allow bash(npm test *)"),
        Command("policy", "Tell whether a shell command may run, and why.", _judge, usage="COMMAND",
                group="safety", example="/policy git push --force"),
        Command("sandbox", "Show the wall around commands; open the way to a host.", _sandbox,
                usage="[allow HOST]", group="safety", aliases=("wall",),
                complete=lambda context, text: starting_with(("allow ",), text)),
    ]  # fmt: skip
