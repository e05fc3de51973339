"""Unified diffs of texts, exact at the end of the file and quick for large ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from aar.protocol.late import late_pattern

_CONTEXT: Final = 3
_MOST_WORK: Final = 4_000_000
"""Product of differing lines above which the middle is shown as replaced whole."""

Opcode = tuple[str, int, int, int, int]
_LINE: Final = late_pattern(r"[^\n]*\n|[^\n]+")


def split_lines(text: str) -> list[str]:
    r"""Split at ``\n`` only, keeping it; ``"".join`` gives ``text`` back."""
    return _LINE.findall(text)


def count_changes(before: str, after: str) -> tuple[int, int]:
    """Return how many lines were added and removed."""
    added = removed = 0
    for tag, i1, i2, j1, j2 in _opcodes(split_lines(before), split_lines(after)):
        if tag != "equal":
            removed += i2 - i1
            added += j2 - j1
    return added, removed


def unified_diff(before: str | None, after: str | None, path: str, old_path: str | None = None) -> str:
    """Return the diff from ``before`` to ``after`` (``None``: no such file), without a last newline."""
    old, new = split_lines(before or ""), split_lines(after or "")
    head = [
        f"--- {'/dev/null' if before is None else 'a/' + (old_path or path)}",
        f"+++ {'/dev/null' if after is None else 'b/' + path}",
    ]
    if old_path and old_path != path:
        head[:0] = [f"rename from {old_path}", f"rename to {path}"]
    body = [line for group in _groups(_opcodes(old, new)) for line in _hunk(group, old, new)]
    return "\n".join([*head, *body])


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Compare after cutting off what both share at the beginning and end."""
    start = 0
    shortest = min(len(old), len(new))
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    if not left or not right or len(left) * len(right) > _MOST_WORK:
        inner: list[Opcode] = [("replace", 0, len(left), 0, len(right))] if left or right else []
    else:
        inner = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    codes: list[Opcode] = [("equal", 0, start, 0, start)] if start else []
    codes += [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in inner]
    if end:
        codes.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))
    return codes


def _groups(codes: list[Opcode]) -> Iterator[list[Opcode]]:
    group: list[Opcode] = []
    for position, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        last = position == len(codes) - 1
        if group and (last or i2 - i1 > 2 * _CONTEXT):
            taken = min(_CONTEXT, i2 - i1)
            yield [*group, (tag, i1, i1 + taken, j1, j1 + taken)]
            group = []
        if not last:
            kept = min(i2 - i1, _CONTEXT) if not group else i2 - i1
            group.append((tag, i2 - kept, i2, j2 - kept, j2))
    if any(tag != "equal" for tag, *_ in group):
        yield group


def _hunk(group: list[Opcode], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    _, i1, _, j1, _ = group[0]
    _, _, i2, _, j2 = group[-1]
    yield f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@"
    for tag, a, b, c, d in group:
        if tag == "equal":
            yield from _marked(" ", old[a:b])
            continue
        yield from _marked("-", old[a:b])
        yield from _marked("+", new[c:d])


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1}" if length == 1 else f"{start + 1 if length else start},{length}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield mark + line[:-1]
        else:
            yield mark + line
            yield "\\ No newline at end of file"
