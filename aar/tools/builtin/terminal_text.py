"""What a program wrote for a terminal, as plain text for the model."""

from __future__ import annotations

from aar.protocol.late import late_pattern

_ESCAPES = late_pattern(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS, SOS, PM, APC: titles, links, clipboard
    r"|\x1b[ -/]+[0-~]|\x1b[0-~]"  # two and three character sequences
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
)
_CONTROLS = late_pattern(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def plain_text(data: bytes) -> str:
    """Return ``data`` decoded, without escape sequences and control characters.

    Bytes that are not UTF-8 become U+FFFD. Of a line that was overwritten after a carriage return (a
    progress bar), the last state stays.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _CONTROLS.sub("", text)


def _last_state(line: str) -> str:
    if "\r" in line:
        states = [state for state in line.split("\r") if state]
        line = states[-1] if states else ""
    if "\b" in line:
        kept: list[str] = []
        for character in line:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        line = "".join(kept)
    return line


def shorten(text: str, limit: int, hint: str) -> str:
    """Return head and tail of ``text`` in at most about ``limit`` characters, cut at line ends where near.

    Args:
        text: Any text.
        limit: Characters to keep; the line that tells of the cut comes on top.
        hint: How to see the rest, put into that line.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[len(text) - (limit - limit // 2) :]
    near = max(limit // 20, 1)
    cut = head.rfind("\n", len(head) - near)
    head = head[: cut + 1] if cut >= 0 else head
    cut = tail.find("\n", 0, near)
    tail = tail[cut + 1 :] if cut >= 0 else tail
    missing = len(text) - len(head) - len(tail)
    lines = text.count("\n", len(head), len(text) - len(tail))
    joint = "" if head.endswith("\n") else "\n"
    return f"{head}{joint}[... {missing} characters ({lines} lines) left out{hint} ...]\n{tail}"
