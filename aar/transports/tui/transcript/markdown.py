"""Markdown of a model as lines: markdown-it's tokens, drawn for a terminal.

HTML is text, images are their names, every link shows where it goes. Text is cleaned after it was parsed,
since an entity such as ``&#27;`` becomes a control character only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from aar.transports.tui.transcript.chunks import Chunk, split_chunks
from aar.transports.tui.transcript.highlight import highlight
from aar.transports.tui.transcript.table import render_table
from aar.transports.tui.transcript.text import Code, Line, Run, clean, clean_prose, indent, plain_lines, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_CHUNK = 20_000
"""Characters of one paragraph, list item or table beyond which it is shown as plain text."""

_MAX_LEVEL = 16
"""Deeper than this the parser leaves text out."""

_MIN_INNER = 12
_OPEN = {"strong_open": "strong", "em_open": "em", "s_open": "strike"}
_CLOSE = frozenset({"strong_close", "em_close", "s_close"})


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])


def render_markdown(text: str, width: int) -> list[Line]:
    """Return all lines of a text."""
    chunks = split_chunks(text)
    env = reference_links(text)
    lines: list[Line] = []
    for chunk in chunks:
        if lines and not chunk.tight:
            lines.append(Line())
        lines.extend(render_chunk(chunk, width, env))
    return lines


def reference_links(text: str) -> dict[str, Any]:
    """Return the link definitions of a text, for `render_chunk`."""
    env: dict[str, Any] = {}
    if "]:" in text:
        defined = [line for line in text.split("\n") if line.lstrip().startswith("[") and "]:" in line]
        _parser().parse("\n".join(defined[:500]), env)
    return env


def render_chunk(chunk: Chunk, width: int, env: dict[str, Any] | None = None) -> list[Line]:
    """Return the lines of one piece of a text."""
    if chunk.fence:
        return render_fence(chunk.text, width)
    if len(chunk.text) > MAX_CHUNK:
        return _plain(chunk.text, width)
    # A copy: the parser adds what this piece defines, and a stream draws some pieces more often than others.
    references = dict((env or {}).get("references", {}))
    tokens = _parser().parse(chunk.text, {"references": references})
    if any(token.level >= _MAX_LEVEL for token in tokens):
        return _plain(chunk.text, width)
    # Definitions of links give nothing; no text of a model is hidden.
    return _Writer(tokens).blocks(0, len(tokens), width) or _plain(chunk.text, width)


def _plain(text: str, width: int) -> list[Line]:
    return plain_lines(clean_prose(text).rstrip(), width, "", code=False) if text.strip() else []


def render_fence(source: str, width: int) -> list[Line]:
    """Return the lines of a fenced block, its fences included in ``source``."""
    rows = source.rstrip("\n").split("\n")
    opener = rows[0].strip()
    info = opener.lstrip("`~").strip()
    closed = len(rows) > 1 and rows[-1].strip().startswith(opener[:3]) and not rows[-1].strip().strip("`~")
    body = "\n".join(rows[1:-1] if closed else rows[1:])
    return code_lines(body, info, width)


def code_lines(body: str, language: str, width: int) -> list[Line]:
    """Return the lines of a block of code, on its own background."""
    code = Code(body)
    lines: list[Line] = []
    for row in highlight(clean(body), language, "code"):
        lines += code_row(row, width, code)
    return lines


def code_row(row: Sequence[Run], width: int, code: Code) -> list[Line]:
    """Return one row of code, wrapped."""
    made = wrap(row, width - 1, prefix=[(" ", "code")], code=True, fill="code")
    for line in made:
        line.code = code
    return made


class _Writer:
    """Walks over the tokens of one text."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens

    def _end(self, start: int) -> int:
        """Return the place of the token that closes the one at ``start``."""
        level = self._tokens[start].level
        return next(
            (
                place
                for place in range(start + 1, len(self._tokens))
                if self._tokens[place].level == level and self._tokens[place].nesting == -1
            ),
            len(self._tokens) - 1,
        )

    def blocks(self, start: int, end: int, width: int, tight: bool = False) -> list[Line]:
        """Return the lines of the tokens between two places."""
        lines: list[Line] = []
        place = start
        while place < end:
            token = self._tokens[place]
            close = self._end(place) if token.nesting == 1 else place
            made = self._block(token, place, close, max(_MIN_INNER, width))
            if made:
                if lines and not (tight or token.hidden or self._tokens[place].type.endswith("list_open")):
                    lines.append(Line())
                lines.extend(made)
            place = close + 1
        return lines

    def _block(self, token: Token, start: int, close: int, width: int) -> list[Line]:
        kind = token.type
        if kind == "inline":
            return self._wrapped(_inline(token.children or ()), width)
        if kind == "paragraph_open":
            return self.blocks(start + 1, close, width)
        if kind == "heading_open":
            mark = "#" * int(token.tag[1:]) + " "
            runs = _inline(self._tokens[start + 1].children or (), "heading")
            return self._wrapped([(mark, "faint"), *runs] if int(token.tag[1:]) > 2 else runs, width)
        if kind in {"bullet_list_open", "ordered_list_open"}:
            return self._list(token, start, close, width)
        if kind == "blockquote_open":
            bar = [("│ ", "quote")]
            return indent(self.blocks(start + 1, close, width - 2), bar, bar)
        if kind in {"fence", "code_block"}:
            return code_lines(token.content.rstrip("\n"), token.info, width)
        if kind == "table_open":
            return self._table(start, close, width)
        if kind == "hr":
            return [Line((("─" * min(width, 40), "rule"),))]
        return self._wrapped([(clean(token.content), "")], width) if token.content else []

    def _wrapped(self, runs: Sequence[Run], width: int) -> list[Line]:
        lines: list[Line] = []
        row: list[Run] = []
        for text, role in runs:
            first, *rest = text.split("\n")
            row.append((first, role))
            for piece in rest:
                lines += wrap([run for run in row if run[0]], width)
                row = [(piece, role)]
        return lines + wrap([run for run in row if run[0]], width)

    def _list(self, token: Token, start: int, close: int, width: int) -> list[Line]:
        lines: list[Line] = []
        number = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
        place = start + 1
        while place < close:
            end = self._end(place)
            mark, role = self._mark(place, number)
            size = cell_len(mark)
            inner = self.blocks(place + 1, end, width - size)
            loose = any(
                self._tokens[at].type == "paragraph_open" and not self._tokens[at].hidden
                for at in range(place, end)
                if self._tokens[at].level == self._tokens[place].level + 1
            )
            if lines and loose:
                lines.append(Line())
            lines += indent(inner or [Line()], [(mark, role)], [(" " * size, "")])
            number = None if number is None else number + 1
            place = end + 1
        return lines

    def _mark(self, item: int, number: int | None) -> tuple[str, str]:
        """Return the mark of a list item; a box of a task is taken out of its text."""
        inline = next((t for t in self._tokens[item + 1 : item + 3] if t.type == "inline"), None)
        first = inline.children[0] if inline is not None and inline.children else None
        if first is not None and first.type == "text":
            box = first.content[:4].lower()
            if box in {"[ ] ", "[x] "}:
                first.content = first.content[4:]
                return ("☑ ", "ok") if box == "[x] " else ("☐ ", "bullet")
        return (f"{number}. ", "bullet") if number is not None else ("• ", "bullet")

    def _table(self, start: int, close: int, width: int) -> list[Line]:
        rows: list[list[list[Run]]] = []
        aligns: list[str] = []
        for place in range(start, close):
            token = self._tokens[place]
            if token.type == "tr_open":
                rows.append([])
            elif token.type in {"th_open", "td_open"}:
                if token.type == "th_open":
                    aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2] or "left")
                runs = _inline(self._tokens[place + 1].children or ())
                rows[-1].append([(text.replace("\n", " "), role) for text, role in runs])
        return render_table(rows, aligns, width)


def _inline(tokens: Sequence[Token], base: str = "") -> list[Run]:
    """Return inline text as runs; newlines stay in them."""
    runs: list[Run] = []
    open_roles: list[str] = [base] if base else []
    targets: list[tuple[str, int]] = []
    for token in tokens:
        kind, role = token.type, " ".join(dict.fromkeys(open_roles))
        if kind in _OPEN:
            open_roles.append(_OPEN[kind])
        elif kind in _CLOSE:
            open_roles.pop()
        elif kind == "link_open":
            targets.append((str(token.attrs.get("href", "")), len(runs)))
            open_roles.append("link")
        elif kind == "link_close":
            open_roles.pop()
            _add_target(runs, *targets.pop())
        elif kind in {"softbreak", "hardbreak"}:
            runs.append(("\n", role))
        elif kind == "code_inline":
            runs.append((clean(token.content), f"{role} inline".strip()))
        elif kind == "image":
            runs.append((f"[image: {clean(token.content)}]", f"{role} muted".strip()))
            _add_target(runs, str(token.attrs.get("src", "")), len(runs))
        elif token.content:
            runs.append((clean_prose(token.content), role))
    return runs


def _add_target(runs: list[Run], target: str, since: int) -> None:
    shown = "".join(text for text, _ in runs[since:])
    target = clean(target).replace("\n", " ")
    if target and target not in {shown, f"mailto:{shown}"}:
        runs.append((f" ({target})", "target"))
