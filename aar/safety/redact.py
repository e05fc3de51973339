"""Takes secrets out of text: by the known form of keys, by value, and by entropy next to a telling name.

Used for logs, sessions, exports and whatever is sent to other tools. The result is stable: redacting again
changes nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, cast

MARK: Final = "[redacted]"
MIN_VALUE: Final = 6
"""Shorter values are not redacted by value: they would take half of every text with them."""

# Forms that vendors publish for their keys (GitHub, AWS, Google, Slack, GitLab, npm, PyPI, Stripe …).
_KEY_FORMS: Final = (
    r"sk-ant-[A-Za-z0-9_-]{16,}",
    r"sk-(?:proj-|svcacct-|or-v1-|admin-)?[A-Za-z0-9_-]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"GOCSPX-[A-Za-z0-9_-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9-]{10,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_-]{16,}",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[A-Za-z0-9_-]{30,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"xai-[A-Za-z0-9]{20,}",
    r"pplx-[A-Za-z0-9]{20,}",
    r"r8_[A-Za-z0-9]{20,}",
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"whsec_[A-Za-z0-9+/=]{16,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"do[opr]_v1_[a-f0-9]{32,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}",
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}",
    r"lin_api_[A-Za-z0-9]{20,}",
    r"sq0[a-z]{3}-[A-Za-z0-9_-]{20,}",
    r"key-[a-f0-9]{32}",
    r"(?:ATATT|ATCTT)[A-Za-z0-9_=-]{20,}",
    r"dop_v1_[a-f0-9]{32,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"hv[sb]\.[A-Za-z0-9_-]{20,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}",
)
_KEYS = re.compile(r"(?<![A-Za-z0-9_])(?:" + "|".join(_KEY_FORMS) + ")")
_BLOCK = re.compile(
    r"(-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----).*?"
    r"(-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?)"
    r"(?!\[redacted\])(?!(?:bearer|basic|token|digest|negotiate|apikey)\b)([^\s\"',]{4,})"
)
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)(?=[^\s]*[0-9+/=._-])([A-Za-z0-9+/=._~-]{8,})")
_URL = re.compile(
    r"\b([a-zA-Z][a-zA-Z0-9+.-]{0,20}://)([^\s/@:\"'<>]{0,200}):(?!\[redacted\]@)([^\s/\"'<>]{1,300})@(?=[^\s@]*)"
)
_USER_OPTION = re.compile(
    r"((?:^|\s)(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']{1,200}:)(?!\[redacted\])([^\s\"']+)"
)
_NAMED = re.compile(
    r"(?i)((?:passw(?:or)?d|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|credentials?|auth[_-]?key|client[_-]?secret|session[_-]?key)[A-Za-z0-9_-]{0,40}[\"']?\s{0,9}(?::=|=>|[:=])\s{0,9})"
    r"(\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;&)}\]]{4,})"
)
_NOT_SECRET = re.compile(
    r"(?i)\[redacted\].*|none|null|true|false|undefined|str|string|int|bytes|bool|float|any|optional.*|\d{1,5}"
    r"|[<$%({\[].*|os\.|.*\(.*|self\..*|env\..*|process\..*"
    r"|config\..*|\*+|x{3,}|your[-_ ].*|example.*|changeme"
)
_NAMES_A_PLACE = re.compile(
    r"(?i).*[_-](env|name|path|file|url|type|id|command|size|count)[\"']?\s*(:=|=>|[:=])\s*"
)
_LOOKS_NAMED_STRONG = re.compile(r"(?i)passw(or)?d|passwd|passphrase|secret")
_WORDISH = re.compile(r"[A-Za-z][a-z]*(?:[_.-][A-Za-z]+)*(?:\[.*)?")
_ENTROPY_BITS = 3.0


class Redactor:
    """Replaces secrets by ``[redacted]``.

    Args:
        values: Secrets known by value (of scrubbed variables, of the key in use); longest go first.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= MIN_VALUE}, key=len, reverse=True)
        known = [value for value in known if value not in MARK]
        self._values = re.compile("|".join(re.escape(value) for value in known)) if known else None

    def redact(self, text: str) -> str:
        """Return ``text`` without secrets."""
        if len(text) < MIN_VALUE:
            return text
        if self._values is not None:
            text = self._values.sub(MARK, text)
        if "PRIVATE KEY" in text:
            text = _BLOCK.sub(_block, text)
        text = _KEYS.sub(MARK, text)
        text = _HEADER.sub(rf"\1{MARK}", text)
        text = _BEARER.sub(rf"\1{MARK}", text)
        if "://" in text:
            text = _URL.sub(rf"\1\2:{MARK}@", text)
        if ":" in text:
            text = _USER_OPTION.sub(rf"\1{MARK}", text)
        return _NAMED.sub(_named, text)

    def redact_json(self, value: Any) -> Any:
        """Apply `redact` to every string of a JSON value; a value under a telling key goes as a whole."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {self._key(key): self._under(key, item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self.redact_json(item) for item in cast("list[Any]", value)]
        return value

    def _key(self, key: Any) -> Any:
        return self.redact(key) if isinstance(key, str) else key

    def _under(self, key: Any, value: Any) -> Any:
        if isinstance(key, str) and isinstance(value, str) and secret_name(key) and value:
            return value if _NOT_SECRET.fullmatch(value) else MARK
        return self.redact_json(value)


_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_.-])(?:passw(?:or)?d|passwd|passphrase|secret|token|api[_-]?key|apikey|access[_-]?key"
    r"|private[_-]?key|client[_-]?secret|credentials?|authorization|cookie)$"
)


def secret_name(name: str) -> bool:
    """Whether a key or variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def entropy(text: str) -> float:
    """Return the Shannon entropy of ``text`` in bits for each character."""
    if not text:
        return 0.0
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())


def _block(match: re.Match[str]) -> str:
    return f"{match[1]}\n{MARK}\n{match[2]}" if match[2] else f"{match[1]}\n{MARK}\n"


def _named(match: re.Match[str]) -> str:
    """``name = value``: a password always, another secret when the value is no word of a program."""
    name, value = match[1], match[2]
    quote = value[0] if value[0] in "\"'" else ""
    bare = value.strip(quote) if quote else value
    if _NOT_SECRET.fullmatch(bare) or MARK in bare or _NAMES_A_PLACE.fullmatch(name):
        return match[0]
    strong = _LOOKS_NAMED_STRONG.search(name) is not None and (
        bool(quote) or "=" in name or not bare.islower()
    )
    random = len(bare) >= 8 and entropy(bare) >= _ENTROPY_BITS and _WORDISH.fullmatch(bare) is None
    return f"{name}{quote}{MARK}{quote}" if strong or random else match[0]
