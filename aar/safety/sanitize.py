r"""Makes untrusted text safe to show: whatever would move the cursor or hide text becomes a visible escape.

Model text, tool output, file names and commands all pass here before they reach a terminal. ``\x1b[31m`` is
shown as ``␛[31m``, a right-to-left override as ``\u202e``; the text that remains holds no control character
but tab and (when asked for) newline.
"""

from __future__ import annotations

import re

from aar.protocol.late import late_pattern

_HIDDEN = (
    # C0 and C1 controls, DEL.
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"
    # Soft hyphen, Arabic letter mark, Mongolian vowel separator, Hangul and Khmer fillers.
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"
    # Zero-width characters, bidi marks, embeddings, overrides and isolates, line and paragraph separators.
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    # Lone surrogates; tags and variation selectors beyond the first sixteen, which carry hidden text.
    r"\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = late_pattern(f"[{_HIDDEN}]")
_EMOJI = (
    "[\u2194\u2195\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
    "[\ufe0f\U0001f3fb-\U0001f3ff]?"
)
# A family of four has three joiners: in a longer chain the terminal would draw one sign for many.
_JOINED = late_pattern(f"(?<!\u200d){_EMOJI}(?:\u200d{_EMOJI}){{1,3}}(?!\u200d)|[{_HIDDEN}]")
_UNSAFE_LINE = late_pattern(f"[{_HIDDEN}\n]")
_ANSI = late_pattern(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two and three byte escapes
    r"|\x1b"
)
_LINE_END = late_pattern(r"\r+\n")


def sanitize(text: str, *, keep_newlines: bool = True) -> str:
    r"""Return ``text`` with every control, bidi, zero-width, tag and surrogate character made visible.

    Args:
        text: From outside.
        keep_newlines: Whether newlines stay; else they are shown as ``\n`` too.
    """
    pattern = _UNSAFE if keep_newlines else _UNSAFE_LINE
    if pattern.search(text) is None:
        return text
    if keep_newlines and "\r\n" in text:
        text = _LINE_END.sub("\n", text)
    return pattern.sub(_visible, text)


def sanitize_prose(text: str) -> str:
    r"""Return ``text`` as `sanitize` does, but let a joiner stay that makes one of two to four emoji.

    For what people read, not for what is run: a family or a flag is then drawn as one sign (``👩‍👧``).
    """
    if "\u200d" not in text:
        return sanitize(text)
    return _JOINED.sub(_joined_or_visible, _LINE_END.sub("\n", text))


def _joined_or_visible(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else _visible(match)


def strip_ansi(text: str) -> str:
    """Return ``text`` without terminal escape sequences, for output that a model reads."""
    if "\x1b" not in text and _UNSAFE.search(text) is None:
        return text
    return _ANSI.sub("", text)


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char == "\x1b":
        return "␛"
    if char == "\n":
        return "\\n"
    if char == "\r":
        return "\\r"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
