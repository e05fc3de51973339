"""A router: which agent or model takes a prompt, by the user's rules or by a small model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aar.orchestration.profiles import Profile
from aar.protocol.errors import ConfigurationError

_LOOK_CHARS: Final = 20_000
_ASK_CHARS: Final = 2000
_KEYS: Final = frozenset({"match", "agent", "model", "max_chars"})
_EXAMPLE: Final = 'routes = [{ match = "review|audit", agent = "reviewer" }]'


@dataclass(frozen=True, slots=True)
class Route:
    """One rule; the first that fits counts.

    Attributes:
        match: Regular expression that is looked for in the prompt, whatever the case.
        agent: Who takes it; ``None``: whoever works; ``none``: aar itself.
        model: Which model takes it; ``None``: the present one.
        max_chars: Only prompts of at most so many characters; 0: any.
    """

    match: re.Pattern[str]
    agent: str | None = None
    model: str | None = None
    max_chars: int = 0

    def fits(self, prompt: str) -> bool:
        """Tell whether it is about this prompt."""
        if self.max_chars and len(prompt) > self.max_chars:
            return False
        return self.match.search(prompt[:_LOOK_CHARS]) is not None


@dataclass(frozen=True, slots=True)
class Choice:
    """Who takes a prompt, and why.

    Attributes:
        agent: Its name; ``none``: aar itself; ``None``: no change.
        model: ``provider/model``; ``None``: no change.
        why: In a few words.
    """

    agent: str | None
    model: str | None
    why: str


def routes_of(value: object, profiles: Mapping[str, Profile]) -> tuple[Route, ...]:
    """Return the rules of ``[agents] routes``.

    Raises:
        ConfigurationError: One is wrong.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ConfigurationError(f"[agents] routes is a list of tables, such as {_EXAMPLE}.")
    return tuple(_route(item, profiles) for item in cast("list[Any]", value))


def _route(item: object, profiles: Mapping[str, Profile]) -> Route:
    table = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    agent, model, most = table.get("agent"), table.get("model"), table.get("max_chars", 0)
    if not table or set(table) - _KEYS or not (agent or model) or not isinstance(table.get("match", ""), str):
        raise ConfigurationError(f"[agents] routes: a rule has match and agent or model, such as {_EXAMPLE}.")
    if agent is not None and agent != "none" and agent not in profiles:
        raise ConfigurationError(
            f"[agents] routes names the agent {agent!r}; there are: {', '.join(profiles)}."
        )
    if model is not None and (not isinstance(model, str) or "/" not in model):
        raise ConfigurationError("[agents] routes: model is written as PROVIDER/MODEL.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ConfigurationError("[agents] routes: max_chars is a whole number.")
    try:
        pattern = re.compile(table.get("match", ""), re.IGNORECASE)
    except re.error as error:
        raise ConfigurationError(f"[agents] routes: match {table['match']!r} is wrong: {error}.") from error
    return Route(pattern, agent, model, most)


def by_rule(routes: Sequence[Route], prompt: str) -> Choice | None:
    """Return who takes a prompt by the first rule that fits; ``None``: no rule does."""
    for number, route in enumerate(routes, 1):
        if route.fits(prompt):
            shown = route.match.pattern or "any prompt"
            return Choice(route.agent, route.model, f"rule {number} ({shown})")
    return None


def routing_question(prompt: str, profiles: Mapping[str, Profile]) -> str:
    """Return what a small model is asked."""
    lines = "\n".join(f"- {item.name}: {item.description[:200]}" for item in profiles.values())
    return (
        "Who should take the task below? Answer with one name of the list and nothing else; `none` is the "
        "general assistant, and right wherever you are not sure.\n- none: any task\n"
        f"{lines}\n\nTask:\n{prompt[:_ASK_CHARS]}"
    )


def by_answer(answer: str, profiles: Mapping[str, Profile]) -> Choice | None:
    """Return what a small model chose; ``None``: it named nobody."""
    names = re.findall(r"[a-z0-9][a-z0-9_-]*", answer.lower())
    known = [name for name in names if name in profiles or name == "none"]
    return Choice(known[0], None, "the small model chose") if len(set(known)) == 1 else None
