"""Parameters that a server does not take for a model: learnt from its refusal, not sent again.

Which model takes which parameter changes with every release, so nothing is tabulated. A request that is
refused because of one optional field is sent again without it, under its other name, or with a value
that the server does take; what was learnt holds for the model as long as the provider lives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from aar.protocol.late import late_pattern
from aar.providers.http.errors import parse_body, read_error

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels of thinking as servers name them, rising."""

_REFUSAL = late_pattern(
    r"unsupported|not supported|unknown|unrecognized|unexpected|not permitted|not allowed|invalid"
    r"|extra (?:inputs|fields)|does not support|not available|only .* supported|no such"
    r"|additional propert|extra_forbidden|must be verified"
)
_SUPPORTED = late_pattern(
    r"supported (?:values|options)(?: are)?:?(.*)|must be one of:?(.*)", re.IGNORECASE | re.DOTALL
)
_VALUE = late_pattern(r"\bvalue|\boption|must be one of")
"""The field itself is known, but not what it was set to."""
_EVERYDAY_WORDS = frozenset({"include", "stream", "stop", "text", "thinking"})
"""Names that sentences about other things use too: in a message they count in quotes only."""


@dataclass(slots=True)
class _Learnt:
    left_out: set[str] = field(default_factory=set[str])
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    replaced: dict[str, Any] = field(default_factory=dict[str, Any])


class RejectedParameters:
    """What one server refused, model by model."""

    def __init__(
        self,
        server: str,
        optional: Sequence[str],
        *,
        other_names: Mapping[str, str] | None = None,
        levels: Sequence[str] = (),
        instead: Mapping[str, Any] | None = None,
    ) -> None:
        """Start with nothing learnt.

        Args:
            server: Host, for the sentences.
            optional: Fields without which a request still makes sense, in the order in which they are
                given up; a dotted name is a field of a field and stands before its parent.
            other_names: Fields and the name that other servers have for them.
            levels: Those of the fields whose values are levels of thinking (`EFFORTS`).
            instead: Values that refused fields get instead of being left out.
        """
        self._server = server
        self._optional = tuple(optional)
        self._other_names = dict(other_names or {})
        self._levels = frozenset(levels)
        self._instead = dict(instead or {})
        self._models: dict[str, _Learnt] = {}

    def apply(self, model: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``fields`` as the server takes them for ``model``."""
        known = self._models.get(model)
        kept = dict(fields)
        if known is None:
            return kept
        for old, new in known.renamed.items():
            if old in kept:
                kept[new] = kept.pop(old)
        for name, value in known.replaced.items():
            if _get(kept, name) is not None:
                _set(kept, name, value)
        for name in known.left_out:
            _set(kept, name, None)
        return kept

    def learn(self, model: str, fields: Mapping[str, Any], status: int, body: bytes) -> str | None:
        """Take note of a field that was refused.

        Args:
            model: Name of the model.
            fields: What was sent besides the conversation.
            status: HTTP status of the refusal.
            body: As received.

        Returns:
            A sentence for people; ``None``: the refusal is about something else, and is final.
        """
        if status not in {400, 422}:
            return None
        parsed = parse_body(body)
        info = read_error(parsed)
        if not _REFUSAL.search(info.words):
            return None
        said = body.decode("utf-8", "replace")
        name = self._named(fields, _parameter(parsed), said)
        if name is None:
            return None
        known = self._models.setdefault(model, _Learnt())
        other = self._other_names.get(name)
        if other and _mentions(said, other) and other not in known.renamed:
            known.renamed[name] = other
            return f"{self._server} wants {other} instead of {name} for {model}."
        value = self._other_value(name, _get(fields, name), info.message)
        if value is not None:
            known.replaced[name] = value
            return f"{self._server} does not take this {name} for {model}; it is set to {_shown(value)}."
        known.left_out.add(name)
        return f"{self._server} does not take {name} for {model}; it is left out."

    def _named(self, fields: Mapping[str, Any], parameter: str, said: str) -> str | None:
        sent = [name for name in self._optional if _get(fields, name) is not None]
        parents = [parameter.rpartition(".")[0], parameter.partition(".")[0]]
        for wanted in (parameter, *parents):
            if wanted in sent:
                return wanted
        if parameter:
            return None
        return next((name for name in sent if _mentions(said, name)), None)

    def _other_value(self, name: str, sent: Any, message: str) -> Any:
        if name in self._instead and sent != self._instead[name]:
            return self._instead[name]
        if name not in self._levels or sent not in EFFORTS or not _VALUE.search(message.lower()):
            return None
        found = _SUPPORTED.search(message)
        words = re.findall(r"[a-z]+", " ".join(found.groups(default="")).lower()) if found else []
        taken = [level for level in EFFORTS if level in words and level != sent]
        if not taken and sent == "max":
            taken = ["xhigh"]
        if not taken and sent == "xhigh":
            taken = ["high"]
        place = EFFORTS.index(sent)
        # Of two that are as near, the higher: who asked for little thinking did not ask for none.
        return min(
            taken, key=lambda level: (abs(EFFORTS.index(level) - place), -EFFORTS.index(level)), default=None
        )


def _mentions(said: str, name: str) -> bool:
    word = re.escape(name)
    if name in _EVERYDAY_WORDS:
        return re.search(rf"[`'\"]{word}[`'\"]", said) is not None
    return re.search(rf"\b{word}\b", said) is not None


def _parameter(body: Any) -> str:
    """Return the field that the error itself names, without an index into it."""
    error = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else None
    named = cast("dict[str, Any]", error).get("param") if isinstance(error, dict) else None
    return re.sub(r"\[\d+\].*", "", named) if isinstance(named, str) else ""


def _get(fields: Mapping[str, Any], name: str) -> Any:
    head, _, rest = name.partition(".")
    value = fields.get(head)
    if not rest:
        return value
    return _get(cast("dict[str, Any]", value), rest) if isinstance(value, dict) else None


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field, or drop it (``None``) with all parents that become empty; nothing shared is changed."""
    head, _, rest = name.partition(".")
    if rest:
        inner = fields.get(head)
        if not isinstance(inner, dict):
            return
        copy = dict(cast("dict[str, Any]", inner))
        _set(copy, rest, value)
        value = copy or None
    if value is None:
        fields.pop(head, None)
    else:
        fields[head] = value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
