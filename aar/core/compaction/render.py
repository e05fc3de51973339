"""The text that stands for turns that were compacted, and the text in which a model reads them before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from aar.core.compaction.facts import Command, Facts, Words
from aar.core.compaction.notes import Notes, render_notes, telling, trim_notes
from aar.core.fold import TurnOutline
from aar.core.tokens import estimate_text
from aar.protocol.messages import (
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

INTRODUCTION = (
    "The oldest part of this conversation was replaced by these notes to make room. What the user said is "
    "quoted word for word. Go on with the work from here; read files again where you need their text."
)
_MOST_FILES = 150
_MOST_READS = 60
_MOST_COMMANDS = 25
_MOST_FAILING = 12
_WORDS_SHARE = 0.4
_NOTES_SHARE = 0.45
_SAYINGS_SHARE = 0.4
_SAYINGS_BESIDE_NOTES = 0.12
_SAYING_CHARS = 280
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n+")
_ARGUMENT_CHARS = 400
_HEAD_CHARS = 700
_TAIL_CHARS = 500


def render_summary(
    facts: Facts,
    notes: Notes,
    budget: int,
    *,
    said_below: frozenset[int] = frozenset(),
    sayings: bool = False,
) -> str:
    """Return the summary.

    Args:
        facts: What the events tell.
        notes: What a model wrote; may be empty.
        budget: Tokens at most, about.
        said_below: Seqs of user messages that follow word for word, so that they are not quoted here.
        sayings: Whether to quote more of what the assistant said, because no model wrote notes.
    """
    noted = render_notes(trim_notes(notes, int(budget * _NOTES_SHARE)))
    parts = [INTRODUCTION, noted]
    earlier = [words for words in facts.words if words.seq not in said_below and words.text]
    parts.append(_said(_quotes(earlier, int(budget * _WORDS_SHARE))))
    parts.append(_section("Permission mode", [facts.mode] if facts.mode else []))
    parts.append(_section("Plan", [f"[{item.status}] {item.title}" for item in facts.plan]))
    parts.append(_section("Files changed", _changes(facts)))
    parts.append(_section("Fails now", _failing(facts)))
    parts.append(_section("Commands run, the latest last", _commands(facts.commands)))
    parts.append(_section("Files read", _reads(facts)))
    # What the notes leave of their share goes to quotes, so that poor notes cost less.
    left = budget * (_NOTES_SHARE + _SAYINGS_BESIDE_NOTES) - estimate_text(noted)
    quoted = budget * _SAYINGS_SHARE if sayings else max(left, budget * _SAYINGS_BESIDE_NOTES)
    parts.append(_section("From what you said", _sayings(facts, int(quoted))))
    return "\n\n".join(part for part in parts if part)


def _section(heading: str, lines: Sequence[str]) -> str:
    return f"## {heading}\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def _said(quotes: Sequence[str]) -> str:
    quoted = "\n".join(f"<user>\n{text}\n</user>" for text in quotes)
    return f"## What the user said, word for word, oldest first\n{quoted}" if quotes else ""


def _quotes(words: Sequence[Words], budget: int) -> list[str]:
    """Quote the user: all of it where it fits, else the first and the last in full, the others cut."""
    whole = [item.text for item in words]
    for limit in (0, 2000, 600, 240, 120):
        last = len(whole) - 1
        quoted = [
            text if not limit or at in (0, last) or len(text) <= limit else _middle_cut(text, limit)
            for at, text in enumerate(whole)
        ]
        if estimate_text("\n".join(quoted)) <= budget:
            return quoted
    left_out = 0
    while len(quoted) > 2 and estimate_text("\n".join(quoted)) > budget:
        drop = max(1, (len(quoted) - 2) // 8)
        del quoted[1 : 1 + drop]
        left_out += drop
    quoted = [_middle_cut(text, max(400, budget * 2)) for text in quoted]
    note = f"({left_out} messages between these were left out; the session file has them.)"
    return [quoted[0], note, *quoted[1:]] if left_out else quoted


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _changes(facts: Facts) -> list[str]:
    changes = list(facts.changes.values())
    lines = [
        f"{change.path} ({change.action}, +{change.added} -{change.removed})"
        for change in changes[-_MOST_FILES:]
    ]
    more = len(changes) - len(lines)
    return [f"({more} more, changed earlier)", *lines] if more else lines


def _reads(facts: Facts) -> list[str]:
    paths = [path for path in facts.reads if path not in facts.changes][-_MOST_READS:]
    return [", ".join(paths)] if paths else []


def _failing(facts: Facts) -> list[str]:
    lines: list[str] = []
    for command in facts.failing[-_MOST_FAILING:]:
        what = ", ".join(command.failed) or _indented(command.tail.strip())
        lines.append(f"`{command.line}` (exit code {command.exit_code}): {what or 'no output'}")
    if facts.check:
        lines.append(f"The check of this run: {_indented(_middle_cut(facts.check, 1500))}")
    return lines


def _commands(commands: Sequence[Command]) -> list[str]:
    return [f"`{item.line}` → {'ok' if not item.fails else f'exit code {item.exit_code}'}"
            for item in commands[-_MOST_COMMANDS:]]  # fmt: skip


def _sayings(facts: Facts, budget: int) -> list[str]:
    """Quote the most telling sentences of the assistant, in their order, each once."""
    found: dict[str, tuple[float, int, str]] = {}
    for at, (_, text) in enumerate(facts.sayings):
        for sentence in _SENTENCE_END.split(text):
            line = " ".join(sentence.split())
            if line:
                found.setdefault(line.lower(), (telling(line), at, line))
    ranked = sorted(enumerate(found.values()), key=lambda item: (item[1][0], item[1][1]), reverse=True)
    kept: list[tuple[int, str]] = []
    for place, (_, _, line) in ranked:
        short = _middle_cut(line, _SAYING_CHARS)
        budget -= estimate_text(short) + 2
        if budget < 0:
            break
        kept.append((place, short))
    return [line for _, line in sorted(kept)]


def _middle_cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} … {text[len(text) - (limit - head) :]}"


def transcript(turns: Sequence[TurnOutline]) -> list[str]:
    """Return each turn as text for the model that writes the notes; what is long in it is shortened."""
    return [text for turn in turns if (text := _turn_text(turn.message))]


def _turn_text(message: Message) -> str:
    return "\n".join(part for block in message.content if (part := _block_text(message.role, block)))


def _block_text(role: str, block: object) -> str:
    match block:
        case TextBlock():
            return f"{role.upper()}: {_ends(block.text, 4000, 2000)}"
        case ResourceBlock():
            return f"{role.upper()} attached {block.uri}: {_ends(block.text)}"
        case ImageBlock():
            return f"{role.upper()}: [image]"
        case ToolUseBlock():
            arguments = json.dumps(block.arguments, ensure_ascii=False)
            return f"CALL {block.name} {_ends(arguments, _ARGUMENT_CHARS, 200)}"
        case ToolResultBlock():
            images = f" [{len(block.images)} images]" if block.images else ""
            return (
                f"RESULT of {block.name}{' (error)' if block.is_error else ''}:{images} {_ends(block.output)}"
            )
        case ReasoningBlock():
            return ""
        case _:
            return ""


def _ends(text: str, head: int = _HEAD_CHARS, tail: int = _TAIL_CHARS) -> str:
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters …\n{text[len(text) - tail :]}"


def chunks(texts: Sequence[str], tokens: int) -> list[str]:
    """Join ``texts`` to pieces of at most about ``tokens`` each; one that is longer is cut in the middle."""
    pieces: list[list[str]] = [[]]
    room = tokens
    for text in texts:
        size = estimate_text(text)
        if size > tokens:
            text, size = _middle_cut(text, max(200, len(text) * tokens // size)), tokens
        if size > room and pieces[-1]:
            pieces.append([])
            room = tokens
        pieces[-1].append(text)
        room -= size
    return ["\n\n".join(piece) for piece in pieces if piece]
