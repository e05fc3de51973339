"""What stands around the text of a question: head, reasons, keys. Pure; made to fit the rows there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from textual.content import Content

from aar.safety.sanitize import sanitize
from aar.transports.tui.approvals import view
from aar.transports.tui.approvals.lines import fold

if TYPE_CHECKING:
    from aar.protocol.events import ApprovalRequest

Asked = Literal["", "edit", "feedback", "rule", "answer"]
KEPT = (("session", "s", "session"), ("project", "a", "project"), ("user", "u", "everywhere"))
"""Scopes in which a rule is kept, with key and words."""
_RULE_ROWS = 2
_LABELS: dict[Asked, str] = {
    "edit": "Enter runs it so · Ctrl+J new line · Esc back",
    "feedback": "What should it do instead? Enter sends · Esc back",
    "rule": "The rule to keep. Enter takes it · Esc back",
    "answer": "Your answer. Enter sends · Ctrl+J new line · Esc back",
}


def head(request: ApprovalRequest, place: int, count: int, below: int) -> Content:
    """Return what is asked, the how manieth of how many, and how much there is to read on."""
    told = Content.styled(view.headline(request), "bold $warning")
    if count > 1:
        told += Content.styled(f"  {place + 1} of {count}", "$text-muted")
    if below:
        told += Content.styled(f"  ↓ {below} more {'line' if below == 1 else 'lines'}", "bold $accent")
    return told


def why(request: ApprovalRequest, rule: str, rows: int, width: int) -> Content:
    """Return wall, reasons and the rule that would be kept, in at most ``rows`` rows."""
    told: list[Content] = []
    if len(request.scopes) > 1 and rule:
        keys = [key for scope, key, _ in KEPT if scope in request.scopes]
        text = f"{', '.join(keys)} also allow{'s' if len(keys) == 1 else ''} later: "
        kept = _cut(
            text + sanitize(rule, keep_newlines=False), min(_RULE_ROWS, rows - 1), width, "… r shows it"
        )
        told = [Content.styled(row, "$text-muted") for row in kept]
    parts = [part for part in (view.wall(request), view.reasons(request)) if part]
    style = "$error" if request.wall == "none" else "$text-muted"
    reasons = _cut(" · ".join(parts), max(1, rows - len(told)), width, "… /why") if parts else []
    return Content("\n").join([*(Content.styled(row, style) for row in reasons), *told])


def _cut(text: str, rows: int, width: int, more: str) -> list[str]:
    """Return ``text`` in at most ``rows`` rows; ``more`` tells where the rest of a longer one is."""
    folded = [row.rstrip() for row in fold(text, width)]
    if rows <= 0 or len(folded) <= rows:
        return folded[: max(0, rows)]
    last = folded[rows - 1]
    while last and cell_len(last) + cell_len(more) > width:
        last = last[:-1]
    return [*folded[: rows - 1], last + more]


def keys(request: ApprovalRequest, asked: Asked, several: bool, width: int) -> str:
    """Return the keys that decide, yes before no, or those of the text box that is open."""
    if asked:
        return "\n".join(fold(_LABELS[asked], width))
    end = [*(["Tab next"] if several else []), "i prompt"]
    if view.is_question(request):
        pick = ["1-9 or Enter picks"] if view.options(request) else []
        return "\n".join(_packed([*pick, "t type an answer", "n no answer", *end], width))
    yes = ["y once", *(f"{key} {words}" for scope, key, words in KEPT if scope in request.scopes)]
    yes += ["r rule"] if len(request.scopes) > 1 else []
    no = ["e edit", "n no", "f no, because", *end]
    one = _packed([*yes, *no], width)
    return one[0] if len(one) == 1 else "\n".join([*_packed(yes, width), *_packed(no, width)])


def _packed(items: Iterable[str], width: int) -> list[str]:
    """Return items in as few rows as they take; none is broken."""
    rows: list[str] = []
    for item in items:
        joined = f"{rows[-1]} · {item}" if rows else item
        if rows and len(joined) <= width:
            rows[-1] = joined
        else:
            rows.append(item)
    return rows


def offered(scopes: Sequence[str]) -> str:
    """Return the keys that say yes in ``scopes``, for one who pressed another."""
    known = {"once": "y once", **{name: f"{key} {words}" for name, key, words in KEPT}}
    return " or ".join(known.get(name, name) for name in scopes)


def rows_of(content: Content, width: int) -> int:
    """Return the rows that ``content`` takes, at most one more."""
    return sum(len(fold(line, width)) for line in content.plain.split("\n")) if content.plain else 0
