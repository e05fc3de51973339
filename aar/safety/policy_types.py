"""What the policy answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aar.safety.rules import RuleRef

Answer = Literal["allow", "ask", "deny"]
Column = Literal["read", "edit", "build", "command", "leaves", "hard"]
By = Literal["policy", "mode"]

_RANK: dict[Answer, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one part of a call."""

    decision: Answer
    reasons: tuple[str, ...] = ()
    rule: RuleRef | None = None
    hard_stop: bool = False
    by: By = "mode"

    @property
    def rank(self) -> int:
        """How strict it is; hard stops come before other questions."""
        return 2 * _RANK[self.decision] + self.hard_stop


@dataclass(frozen=True, slots=True)
class CommandDecision:
    """The answer for one simple command of a command line."""

    argv: tuple[str, ...]
    decision: Answer
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for a call.

    Attributes:
        decision: ``allow``, ``ask`` or ``deny``.
        rule: The rule that decided, if one did.
        reasons: Sentences for people and for the model.
        commands: For ``bash``: the answer for each simple command.
        proposed_rule: What "don't ask again" would save; ``None`` when nothing narrow enough is of use.
        hard_stop: Whether a hard stop decided; no rule can lift one.
        by: ``policy`` for rules, protections and hard stops, ``mode`` for the mode's own table.
        unlocks: Protected paths that a command may write once a person has allowed it.
        by_words: Whether a command was allowed for what its words do: where it runs they must mean just that.
    """

    decision: Answer
    rule: RuleRef | None = None
    reasons: tuple[str, ...] = ()
    commands: tuple[CommandDecision, ...] = ()
    proposed_rule: str | None = None
    hard_stop: bool = False
    by: By = "mode"
    unlocks: tuple[Path, ...] = ()
    by_words: bool = False


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest verdict, with the reasons of all that are as strict in their decision."""
    items = list(verdicts)
    if not items:
        return Verdict("allow")
    worst = max(items, key=lambda item: item.rank)
    reasons = dict.fromkeys(worst.reasons)
    for item in items:
        if item.decision == worst.decision != "allow":
            reasons.update(dict.fromkeys(item.reasons))
    return Verdict(worst.decision, tuple(reasons), worst.rule, worst.hard_stop, worst.by)


def explain(decision: Decision) -> dict[str, Any]:
    """Return the JSON object that ``aar policy check`` prints (DESIGN 10)."""
    rule = decision.rule
    return {
        "decision": decision.decision,
        "rule": None if rule is None else {"text": rule.text, "layer": rule.layer},
        "reasons": list(decision.reasons),
        "commands": [
            {"argv": list(item.argv), "decision": item.decision, "reasons": list(item.reasons)}
            for item in decision.commands
        ],
    }
