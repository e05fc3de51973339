"""What a check says, made short: without noise, with what fails now and did not fail before in front."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aar.protocol.late import late_pattern

_PYTEST_END: Final = late_pattern(r"^=*\s*\d+ (?:failed|errors?|passed)\b.* in [\d.]+s\b.*$", re.MULTILINE)
_WARNING: Final = late_pattern(r"site-packages/.*Warning: ")
_NAMES: Final = (
    late_pattern(r"^(?:FAILED|ERROR) (\S+?::.+?|\S+\.\w+)(?: - .*)?$"),  # pytest
    late_pattern(r"^(?:FAIL|ERROR): (\S+ \(.+?\))"),  # unittest
    late_pattern(r"^\s*--- FAIL: (\S+)"),  # go test
    late_pattern(r"^test (\S+) \.\.\. FAILED$"),  # cargo test
    late_pattern(r"^\s*(?:●|✕|×|✗) (.+?)(?: \(\d+ ?ms\))?$"),  # jest, vitest, mocha
    late_pattern(r"^not ok \d+ ?-? ?(.+)$"),  # TAP
)
_PLACED: Final = late_pattern(
    r"^(\S+?)(?::\d+(?::\d+)?:?|\(\d+,\d+\):) +(.*\b(?:error|warning|[A-Z]+\d{2,})\b.*)$"
)
"""Compilers and linters: file, line, words. The line is no part of the name, because it moves."""
_SECTION: Final = late_pattern(
    r"^(?:_{3,} .+ _{3,}|--- FAIL: .+|\s*● .+|(?:FAIL|ERROR): \S+ \(.+\)|---- \S+ stdout ----)$"
)
_END: Final = late_pattern(
    r"^(?:=+ (?:short test summary|warnings summary|\d+ ).*|failures:|Ran \d+ tests? .*)$"
)
_SHOWN: Final = 20


def essential(output: str) -> str:
    """Return a check's output without what follows a test summary and without warnings of libraries."""
    ends = list(_PYTEST_END.finditer(output))
    if ends:
        output = output[: ends[-1].end()]
    kept: list[str] = []
    in_warning = False
    for line in (line.rstrip() for line in output.splitlines()):
        in_warning = bool(_WARNING.search(line)) or (in_warning and bool(line))
        noise = in_warning or line.lstrip().startswith("warnings.warn(")
        if not noise and (line or (kept and kept[-1])):
            kept.append(line)
    return "\n".join(kept).strip()


def failing(output: str) -> tuple[str, ...]:
    """Return the names of what fails, each once, in order: tests, or places with their message."""
    found: dict[str, None] = {}
    for line in output.splitlines():
        for pattern in _NAMES:
            if match := pattern.match(line):
                found[match[1].strip()] = None
                break
        else:
            if match := _PLACED.match(line):
                found[f"{match[1]}: {match[2].strip()}"] = None
    return tuple(found)


def arranged(output: str, now: Sequence[str], before: Sequence[str] | None, limit: int) -> str:
    """Return ``output`` within ``limit`` characters, with new failures in front.

    Args:
        output: What `essential` left.
        now: What `failing` finds in it.
        before: What failed the last time; ``None``: this is the first time.
        limit: Characters; a mark tells what was cut.
    """
    new = [name for name in now if before is not None and name not in before]
    if before is None or (not new and tuple(now) == tuple(before)):
        return shortened(output, limit)
    head = _comparison(new, [name for name in before if name not in now], [n for n in now if n in before])
    body = _new_first(output, new) if new else output
    room = max(limit - len(head), limit // 2)
    return f"{head}\n{shortened(body, room, 2 / 3 if new else 1 / 3)}" if head else shortened(body, room)


def _comparison(new: Sequence[str], gone: Sequence[str], still: Sequence[str]) -> str:
    lines: list[str] = []
    groups = (("Fails now and did not before", new), ("Passes now", gone), ("Still fails", still))
    for label, names in groups:
        if names:
            more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(f"{label}: {', '.join(name[:200] for name in names[:_SHOWN])}{more}")
    return "\n".join(lines)


def _new_first(output: str, new: Sequence[str]) -> str:
    """Return the parts about ``new`` failures before those about others."""
    leaves = [re.split(r"::|/|\s", name.partition("[")[0])[-1] for name in new]
    head: list[str] = []
    sections: list[list[str]] = []
    tail: list[str] = []
    for line in output.splitlines():
        if tail or (sections and _END.match(line)):
            tail.append(line)
        elif _SECTION.match(line):
            sections.append([line])
        else:
            (sections[-1] if sections else head).append(line)
    sections.sort(key=lambda part: not any(leaf and leaf in part[0] for leaf in leaves))
    return "\n".join([*head, *(line for part in sections for line in part), *tail])


def shortened(text: str, limit: int, head: float = 1 / 3) -> str:
    """Return ``text`` without its middle where it is too long; ``head`` is the share that stands before."""
    if len(text) <= limit:
        return text
    first = int(limit * head)
    return f"{text[:first]}\n…\n{text[first - limit :]}"
