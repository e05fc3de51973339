"""A critic: judges an answer and its changes before they are final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aar.orchestration.profiles import Profile
from aar.protocol.errors import ConfigurationError
from aar.protocol.events import ContextEvent, Event, Notice
from aar.protocol.messages import TextBlock

MAX_IMPROVEMENTS: Final = 3
MAX_ROUNDS: Final = 5
SOURCE: Final = "critic"
_DIFF_CHARS: Final = 60_000
_ANSWER_CHARS: Final = 20_000
_STEPS: Final = 15

VERDICT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["approved", "needs_improvement"]},
        "improvements": {
            "type": "array",
            "maxItems": MAX_IMPROVEMENTS,
            "items": {
                "type": "object",
                "properties": {
                    "what": {
                        "type": "string",
                        "description": "What is wrong or missing, with file and line.",
                    },
                    "why": {"type": "string", "description": "What happens because of it."},
                    "fix": {"type": "string", "description": "What to do."},
                },
                "required": ["what", "why", "fix"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["verdict", "improvements"],
    "additionalProperties": False,
}
_PROMPT: Final = """\
A coding assistant says that it is done. Judge its work before the user gets it, by these: is it correct, \
is it all that was asked for and no more, is it clear, can the user act on it, is it safe. Read files \
where you need to be sure; change nothing. Approve unless something matters: at most three improvements, \
each of which you can show, worst first. Matters of taste are no reasons."""


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """``[agents] critic``.

    Attributes:
        rounds: How often it may send the work of one run back.
        model: ``provider/model``; ``None``: that of the agent.
    """

    rounds: int
    model: str | None = None


def critic_settings(value: object) -> CriticSettings | None:
    """Return the settings; ``None``: there is no critic.

    Raises:
        ConfigurationError: They are wrong.
    """
    if value in (None, False, 0):
        return None
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {"rounds": value}
    rounds, model = table.get("rounds", 1), table.get("model")
    wrong = set(table) - {"rounds", "model"}
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 0 <= rounds <= MAX_ROUNDS or wrong:
        raise ConfigurationError(
            f'[agents] critic is a table such as {{ rounds = 1, model = "PROVIDER/MODEL" }}; rounds from '
            f"0 to {MAX_ROUNDS}."
        )
    if model is not None and (not isinstance(model, str) or "/" not in model):
        raise ConfigurationError("[agents] critic: model is written as PROVIDER/MODEL.")
    return CriticSettings(rounds, model) if rounds else None


def critic_profile(settings: CriticSettings) -> Profile:
    """Return who criticises: reads, and changes nothing."""
    return Profile(
        "critic",
        "Judges an answer and its changes before they are final.",
        _PROMPT,
        tools=("read_file", "grep", "find_files", "list_directory", "read_output"),
        model=settings.model,
        mode="plan",
        max_steps=_STEPS,
    )


def critic_facts(task: str, answer: str, diffs: Sequence[str]) -> list[tuple[str, str]]:
    """Return names and texts of what a critic judges, cut where they are long."""
    diff = "\n".join(diffs)
    if len(diff) > _DIFF_CHARS:
        diff = f"{diff[:_DIFF_CHARS]}\n[cut: {len(diff) - _DIFF_CHARS:,} more characters; read the files]"
    facts = [("task", task[:_ANSWER_CHARS]), ("answer", answer[:_ANSWER_CHARS]), ("changes", diff)]
    return [(name, text) for name, text in facts if text.strip()]


def verdict_events(
    document: Mapping[str, Any], round_: int, rounds: int
) -> tuple[Event | None, Event | None]:
    """Return what the user is told (approval), or what sends the work back; one of both."""
    improvements = cast("list[dict[str, str]]", document.get("improvements", []))[:MAX_IMPROVEMENTS]
    if document.get("verdict") == "approved" or not improvements:
        return Notice(level="info", code=SOURCE, message="The critic approved."), None
    lines = [
        f"{at}. {item.get('what', '')} {item.get('why', '')} Fix: {item.get('fix', '')}"
        for at, item in enumerate(improvements, 1)
    ]
    text = (
        "A critic has looked at your work. Improve what you find to be right, and say of the rest in one "
        "sentence why it is not. Then give your final answer again, whole.\n" + "\n".join(lines)
    )
    count = f"{len(lines)} improvement{'s' if len(lines) > 1 else ''}"
    label = f"Critic, round {round_} of {rounds}: {count}"
    return None, ContextEvent(source=SOURCE, label=label, content=(TextBlock(text=text),))
