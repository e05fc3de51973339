"""Text in files: encoding, byte order mark and line ends, kept exactly when a file is written again."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

from aar.protocol.errors import ToolCategory, ToolFailure

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SNIFF_BYTES: Final = 8192
"""Bytes at the beginning of a file that tell whether it is text."""


def detect_encoding(head: bytes) -> tuple[str, bytes]:
    """Return the codec and the byte order mark that a file beginning with ``head`` has.

    Without a mark the codec is ``utf-8``; the caller falls back to ``latin-1`` where that does not decode.
    """
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return codec, mark
    return "utf-8", b""


def is_binary(head: bytes) -> bool:
    """Tell whether a file that begins with ``head`` is no text: it holds a NUL byte and no UTF-16 mark."""
    codec, _ = detect_encoding(head)
    return codec == "utf-8" and b"\0" in head


@dataclass(frozen=True, slots=True)
class TextFile:
    """A decoded file.

    Attributes:
        text: Content without the byte order mark, line ends as they are.
        codec: ``utf-8``, ``utf-16-le``, ``utf-16-be`` or ``latin-1``.
        mark: The byte order mark, or nothing.
    """

    text: str
    codec: str = "utf-8"
    mark: bytes = b""

    @property
    def newline(self) -> str:
        """The line end that most lines have."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf > self.text.count("\n") - crlf else "\n"

    def encode(self, text: str) -> bytes:
        r"""Return the bytes of ``text`` in this file's encoding, mark included.

        Raises:
            ToolFailure: ``invalid_arguments`` when the encoding lacks a character of ``text``.
        """
        try:
            return self.mark + text.encode(self.codec)
        except UnicodeEncodeError as error:
            raise ToolFailure(
                ToolCategory.INVALID_ARGUMENTS,
                f"The file is {self.codec} text, which cannot hold {text[error.start]!r}. "
                "Use other characters, or convert the file with a command first.",
            ) from None


def decode(data: bytes, path: str) -> TextFile:
    """Decode a file so that `TextFile.encode` gives the same bytes back.

    Raises:
        ToolFailure: ``invalid_arguments`` for a binary file.
    """
    if is_binary(data[:SNIFF_BYTES]):
        raise ToolFailure(
            ToolCategory.INVALID_ARGUMENTS,
            f"{path} is a binary file ({len(data):,} bytes, {binary_kind(data)}), not text. "
            "Use a command to work with it.",
        )
    codec, mark = detect_encoding(data)
    body = data[len(mark) :]
    try:
        text = body.decode(codec)
        if text.encode(codec) == body:
            return TextFile(text, codec, mark)
    except UnicodeError:
        pass
    return TextFile(data.decode("latin-1"), "latin-1", b"")


_MAGIC: Final = (
    (b"\x7fELF", "ELF program or library"),
    (b"MZ", "Windows program"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"%PDF", "PDF document"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\0asm", "WebAssembly module"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"GGUF", "GGUF model"),
)


def binary_kind(head: bytes) -> str:
    """Name the kind of a binary file by its first bytes."""
    if head[257:262] == b"ustar":
        return "tar archive"
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "unknown kind")
