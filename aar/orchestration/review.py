"""Reviews: findings as data, which can be shown, applied and put aside one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from aar.orchestration.profiles import BUILT_IN, Profile
from aar.protocol.events import ContextEvent, Event, Notice
from aar.protocol.messages import TextBlock
from aar.protocol.text import clean_text

SEVERITIES: Final = ("critical", "high", "medium", "low")
"""Worst first."""
MAX_FINDINGS: Final = 50
FINDING_CODE: Final = "finding"
"""``code`` of the notice that tells what became of a finding."""
SOURCE: Final = "review"
"""``source`` of the `ContextEvent` that holds a review; its field ``review`` holds the findings."""
Outcome = Literal["open", "applied", "dismissed"]

FINDINGS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "description": "The review in at most three sentences."},
        "findings": {
            "type": "array",
            "maxItems": MAX_FINDINGS,
            "items": {
                "type": "object",
                "properties": {
                    "file": {"type": "string", "description": "Path, relative to the project."},
                    "line": {"type": "integer", "minimum": 0, "description": "From 1; 0: the whole file."},
                    "severity": {"type": "string", "enum": list(SEVERITIES)},
                    "title": {"type": "string", "description": "What is wrong, in one line."},
                    "why": {
                        "type": "string",
                        "description": "What goes wrong, in which case; how it is shown.",
                    },
                    "fix": {"type": "string", "description": "How to mend it, in words."},
                    "old_text": {
                        "type": "string",
                        "description": "Exact text of the file that the fix replaces; empty where that is "
                        "not one place.",
                    },
                    "new_text": {"type": "string", "description": "What it is replaced by."},
                },
                "required": ["file", "line", "severity", "title", "why", "fix", "old_text", "new_text"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["summary", "findings"],
    "additionalProperties": False,
}
"""What a reviewer answers."""

_PROMPT: Final = """\
Review {subject}. Do not change anything.

The change is attached; where it is cut, look at the rest with git. Read the changed code and as much \
around it as you need to be sure. {look}
Report only what you can show. Each finding: the file and line in the new state, how serious it is, what \
goes wrong in which case, and the fix; where the fix is one replacement, old_text is the exact text of the \
file as it is now. Leave matters of taste out. No findings is a good answer.{focus}"""
_LOOK: Final = (
    "Look for wrong results and missed cases, broken callers, data loss, races, security holes, missing "
    "tests, and code that is harder than it need be. Severity: critical loses data or opens the system, "
    "high is wrong in common cases, medium in rare ones, low is the rest."
)
_LOOK_SECURITY: Final = (
    "Look for what an attacker could use: injection (SQL, shell, HTML, templates, paths), broken "
    "authentication and access control, secrets in code, unsafe deserialisation, weak cryptography, "
    "server-side requests, missing validation, races, unsafe defaults, and dependencies known to be "
    "vulnerable. Severity: critical can be used by anybody from outside, high with little, medium under "
    "conditions, low is defence in depth. Say how each is reached and what an attacker gains."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a review found.

    Attributes:
        number: From 1, the most serious first.
        file: Relative path.
        line: From 1; 0: none in particular.
        severity: One of `SEVERITIES`.
        title: What is wrong, in one line.
        why: What goes wrong, and when.
        fix: How to mend it.
        old_text: What the fix replaces; empty: it is no single replacement.
        new_text: What it is replaced by.
        outcome: What became of it.
    """

    number: int
    file: str
    line: int
    severity: str
    title: str
    why: str
    fix: str
    old_text: str = ""
    new_text: str = ""
    outcome: Outcome = "open"

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def replaces(self) -> bool:
        """Whether the fix is one replacement."""
        return bool(self.old_text) and self.old_text != self.new_text


@dataclass(frozen=True, slots=True)
class Review:
    """A review with what became of its findings.

    Attributes:
        review_id: Id of its event; empty: not stored yet.
        kind: ``review`` or ``security``.
        subject: What was reviewed.
        summary: In a few sentences.
        findings: The most serious first.
    """

    review_id: str
    kind: str
    subject: str
    summary: str
    findings: tuple[Finding, ...] = field(default=())

    def finding(self, number: int) -> Finding | None:
        """Return the finding with this number."""
        return next((item for item in self.findings if item.number == number), None)


def reviewer(profiles: Mapping[str, Profile], kind: str) -> Profile:
    """Return who reviews: the user's own agent of that name, else aar's."""
    name = "security" if kind == "security" else "reviewer"
    return profiles.get(name) or next(item for item in BUILT_IN if item.name == name)


def review_prompt(kind: str, subject: str, focus: str = "") -> str:
    """Return what a reviewer is asked."""
    look = _LOOK_SECURITY if kind == "security" else _LOOK
    wish = f"\n\nLook at this above all: {focus}" if focus else ""
    return _PROMPT.format(subject=subject, look=look, focus=wish)


def review_of(document: Mapping[str, Any], kind: str, subject: str) -> Review:
    """Return the review that a reviewer's answer (valid for `FINDINGS_SCHEMA`) holds, without doubles."""
    found: dict[tuple[str, int, str], Finding] = {}
    for raw in cast("list[dict[str, Any]]", document.get("findings", []))[:MAX_FINDINGS]:
        item = _finding(raw)
        found.setdefault((item.file, item.line, item.title.casefold()), item)
    ordered = sorted(found.values(), key=lambda item: (SEVERITIES.index(item.severity), item.file, item.line))
    numbered = tuple(replace(item, number=at) for at, item in enumerate(ordered, 1))
    return Review("", kind, subject, clean_text(str(document.get("summary", ""))).strip(), numbered)


def _finding(raw: Mapping[str, Any]) -> Finding:
    def text(name: str) -> str:
        return clean_text(str(raw.get(name) or ""))

    severity = text("severity").lower()
    return Finding(
        number=int(raw.get("number") or 0),
        file=text("file").strip().removeprefix("./"),
        line=max(0, int(raw.get("line") or 0)),
        severity=severity if severity in SEVERITIES else "low",
        title=" ".join(text("title").split()),
        why=text("why").strip(),
        fix=text("fix").strip(),
        old_text=text("old_text"),
        new_text=text("new_text"),
    )


def review_event(review: Review) -> Event:
    """Return the event that keeps a review, and puts it before the model as data."""
    fields = [
        {name: getattr(item, name) for name in Finding.__slots__ if name != "outcome"}
        for item in review.findings
    ]
    return ContextEvent.model_validate(
        {
            "source": SOURCE,
            "label": headline(review),
            "content": (TextBlock(text=review_text(review)),),
            "trusted": False,
            "review": {
                "kind": review.kind,
                "subject": review.subject,
                "summary": review.summary,
                "findings": fields,
            },
        }
    )


def headline(review: Review) -> str:
    """Return a review in one line."""
    counts = [
        f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(item.severity == severity for item in review.findings))
    ]
    name = "Security review" if review.kind == "security" else "Review"
    return f"{name} of {review.subject}: {', '.join(counts) or 'no findings'}"


def review_text(review: Review) -> str:
    """Return a review as Markdown."""
    parts = [review.summary] if review.summary else []
    for item in review.findings:
        done = "" if item.outcome == "open" else f" ({item.outcome})"
        parts.append(
            f"{item.number}. **{item.severity}** `{item.place}` {item.title}{done}\n   {item.why}\n   "
            f"Fix: {item.fix}"
        )
    return "\n\n".join(parts) or "Nothing was found."


def outcome_event(review: Review, finding: Finding, outcome: Outcome) -> Event:
    """Return the event that tells what became of a finding."""
    return Notice.model_validate(
        {
            "level": "info",
            "code": FINDING_CODE,
            "message": f"Finding {finding.number} ({finding.place}) was {outcome}.",
            "review": review.review_id,
            "number": finding.number,
            "outcome": outcome,
        }
    )


def latest_review(events: Iterable[Event]) -> Review | None:
    """Return the last review of a session as it stands now; a fold over its events."""
    review: Review | None = None
    outcomes: dict[int, Outcome] = {}
    for event in events:
        match event:
            case ContextEvent(source="review"):
                stored = (event.model_extra or {}).get("review")
                if isinstance(stored, dict):
                    review, outcomes = _stored(event.id, cast("dict[str, Any]", stored)), {}
            case Notice(code="finding"):
                extra = event.model_extra or {}
                if review is not None and extra.get("review") == review.review_id:
                    outcomes[int(extra.get("number") or 0)] = cast("Outcome", extra.get("outcome"))
            case _:
                pass
    if review is None:
        return None
    findings = tuple(replace(item, outcome=outcomes.get(item.number, "open")) for item in review.findings)
    return replace(review, findings=findings)


def _stored(review_id: str, stored: Mapping[str, Any]) -> Review:
    findings = tuple(_finding(item) for item in cast("Sequence[dict[str, Any]]", stored.get("findings", ())))
    return Review(
        review_id,
        str(stored.get("kind") or "review"),
        str(stored.get("subject") or ""),
        str(stored.get("summary") or ""),
        findings,
    )


def apply_prompt(finding: Finding) -> str:
    """Return what lets the agent mend what cannot be replaced as it stands."""
    return (
        f"Mend this finding of the review, and nothing else.\n\n{finding.severity} {finding.place}: "
        f"{finding.title}\n{finding.why}\nFix: {finding.fix}\n\nCheck first that it is true; if it is not, "
        "say so and change nothing. Then run the tests that concern it."
    )
