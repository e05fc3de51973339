"""Takes secrets out of text: by the known form of keys, by value, and by entropy next to a telling name.

Used for logs, sessions, exports and whatever is sent to other tools. The result is stable: redacting again
changes nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from aar.protocol.late import late_pattern

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
_KEYS = late_pattern(r"(?<![A-Za-z0-9_])(?:" + "|".join(_KEY_FORMS) + ")")
_BLOCK = late_pattern(
    r"(-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----).*?"
    r"(-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
# Each of these is tried only where its needle stands; the secret is the group of that name.
_HEADER = late_pattern(
    r"(?i)(?<![A-Za-z0-9_])authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?"
    r"(?!\[redacted\])(?!(?:bearer|basic|token|digest|negotiate|apikey)\b)(?P<secret>[^\s\"',]{4,})"
)
_BEARER = late_pattern(
    r"(?i)(?<![A-Za-z0-9_])(?:bearer|basic)\s+(?=[^\s]*[0-9+/=._-])(?P<secret>[A-Za-z0-9+/=._~-]{8,})"
)
_URL = late_pattern(
    r"(?<=[a-zA-Z0-9+.-])://[^\s/@:\"'<>]{0,200}:(?!\[redacted\]@)(?P<secret>[^\s/\"'<>]{1,300})@(?=[^\s@]*)"
)
_USER_OPTION = late_pattern(
    r"(?<!\S)(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']{1,200}:(?!\[redacted\])(?P<secret>[^\s\"']+)"
)
_NAMED = late_pattern(
    r"(?i)((?:passw(?:or)?d|passphrase|secret|token|key|credentials?)"
    r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,9}(?::=|=>|[:=])\s{0,9})"
    r"(\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;&)}\]]{4,})"
)
_BEFORE_KEY: Final = (b"api", b"access", b"private", b"auth", b"session")
_NAMES: Final = (b"passw", b"passphrase", b"secret", b"token", b"key", b"credential")
_NEEDLES: Final = (
    (b"authorization", _HEADER),
    (b"bearer", _BEARER),
    (b"basic", _BEARER),
    (b"://", _URL),
    (b"-u ", _USER_OPTION),
    (b"-u=", _USER_OPTION),
    (b"--user", _USER_OPTION),
    (b"--proxy-user", _USER_OPTION),
)
_KEY_RUN: Final = 15
"""The shortest run of letters, digits, ``_`` and ``-`` in any of the key forms."""
_RUNS: Final = (
    bytes(97 if chr(code).isalnum() or chr(code) in "_-" else 32 for code in range(128)) + b" " * 128
)
_KEY_TEXT: Final = late_pattern(r"[A-Za-z0-9_.+/=-]*")
_MAX_PASSES: Final = 4
_NOT_SECRET = late_pattern(
    r"(?i)\[redacted\].*|none|null|true|false|undefined|str|string|int|bytes|bool|float|any|optional.*|\d{1,5}"
    r"|[<$%({\[].*|os\.|.*\(.*|self\..*|env\..*|process\..*"
    r"|config\..*|\*+|x{3,}|your[-_ ].*|example.*|changeme"
)
_NAMES_A_PLACE = late_pattern(
    r"(?i).*[_-](env|name|path|file|url|type|id|command|size|count)[\"']?\s*(:=|=>|[:=])\s*"
)
_LOOKS_NAMED_STRONG = late_pattern(r"(?i)passw(or)?d|passwd|passphrase|secret")
_WORDISH = late_pattern(r"[A-Za-z][a-z]*(?:[_.-][A-Za-z]+)*(?:\[.*)?")
_ENTROPY_BITS = 3.0


class Redactor:
    """Replaces secrets by ``[redacted]``.

    Args:
        values: Secrets known by value (of scrubbed variables, of the key in use); longest go first.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = sorted({value for value in values if len(value) >= MIN_VALUE}, key=len, reverse=True)
        self._values = [value for value in known if value not in MARK]

    def redact(self, text: str) -> str:
        """Return ``text`` without secrets."""
        if len(text) < MIN_VALUE:
            return text
        if "PRIVATE KEY" in text:
            text = _BLOCK.sub(_block, text)
        # What is replaced may bring a name next to another value, so a text with hits is looked at again.
        for _ in range(_MAX_PASSES):
            found = self._spans(text)
            if not found:
                break
            text = _replaced(text, found)
        return text

    def redact_known(self, text: str) -> str:
        """Return ``text`` without known values, keys of known form and private keys.

        Names and entropy are not looked at: source code that a model works on stays what it is.
        """
        if len(text) < MIN_VALUE:
            return text
        if "PRIVATE KEY" in text:
            text = _BLOCK.sub(_block, text)
        found = [*self._value_spans(text), *_key_spans(text, text.encode("ascii", "replace"))]
        return _replaced(text, found) if found else text

    def _value_spans(self, text: str) -> Iterator[tuple[int, int]]:
        for value in self._values:
            at = text.find(value)
            while at >= 0:
                yield at, at + len(value)
                at = text.find(value, at + len(value))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        # One byte a character, so that offsets are those of the text; what is searched is ASCII.
        raw = text.encode("ascii", "replace")
        found = [*self._value_spans(text), *_key_spans(text, raw)]
        folded = raw.lower()
        for needle, pattern in _NEEDLES:
            found += [match.span("secret") for match in _matches(pattern, text, folded, needle)]
        for name in _NAMES:
            for match in _matches(_NAMED, text, folded, name, before=_BEFORE_KEY if name == b"key" else ()):
                span = _named(match)
                if span is not None:
                    found.append(span)
        return found

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


_SECRET_NAME = late_pattern(
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


def _positions(text: bytes, needle: bytes) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + len(needle))


def _matches(
    pattern: re.Pattern[str], text: str, folded: bytes, needle: bytes, before: tuple[bytes, ...] = ()
) -> Iterator[re.Match[str]]:
    """Yield matches of ``pattern`` that begin at the needle and do not overlap, so that time stays linear."""
    at = folded.find(needle)
    while at >= 0:
        match = None
        if not before or folded[max(0, at - 8) : at].rstrip(b"_-").endswith(before):
            match = pattern.match(text, at)
        if match is not None:
            yield match
        at = folded.find(needle, at + 1 if match is None else max(at + 1, match.end()))


def _key_spans(text: str, raw: bytes) -> Iterator[tuple[int, int]]:
    """Find keys by their form, only where a run of characters is long enough to be one."""
    runs = raw.translate(_RUNS)
    wanted, done = b"a" * _KEY_RUN, 0
    at = runs.find(wanted)
    while at >= 0:
        whole = _KEY_TEXT.match(text, at)
        end = whole.end() if whole is not None else at + _KEY_RUN
        for match in _KEYS.finditer(text, max(done, at - 6), end):
            yield match.span()
        done = end
        at = runs.find(wanted, end)
    for at in _positions(raw, b"whsec_"):
        match = _KEYS.match(text, at)
        if match is not None:
            yield match.span()


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    """Return ``text`` with a mark in place of each span; spans that meet get one."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start > done or (start == 0 and not pieces):
            pieces += (text[done:start], MARK)
        done = max(done, end)
    return "".join((*pieces, text[done:]))


def _named(match: re.Match[str]) -> tuple[int, int] | None:
    """``name = value``: a password always, another secret when the value is no word of a program."""
    name, value = match[1], match[2]
    quote = value[0] if value[0] in "\"'" else ""
    bare = value.strip(quote) if quote else value
    if _NOT_SECRET.fullmatch(bare) or MARK in bare or _NAMES_A_PLACE.fullmatch(name):
        return None
    strong = _LOOKS_NAMED_STRONG.search(name) is not None and (
        bool(quote) or "=" in name or not bare.islower()
    )
    random = len(bare) >= 8 and entropy(bare) >= _ENTROPY_BITS and _WORDISH.fullmatch(bare) is None
    if not (strong or random):
        return None
    start, end = match.span(2)
    return (start + 1, end - 1) if quote else (start, end)
