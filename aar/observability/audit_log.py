"""A keyed hash chain beside a session file, which proves that no line of it was changed afterwards.

Beside ``ID.jsonl`` lies ``ID.d/audit``: for each line of the session its length in bytes and an HMAC-SHA256
over the link before and the line. The key lies in the user's data (0600), where commands behind a wall cannot
read; who has no key can neither change a line nor make a new chain. Whoever has the user's own rights can:
against that, and against an end that is cut off, keep the head that `aar audit verify` prints elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aar.protocol.errors import StorageError

_KEY_BYTES = 32
_START = b"\0" * 32
_CHAIN = "audit"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What a check found.

    Attributes:
        ok: Whether every line is as it was written and none is missing.
        lines: Lines that were checked.
        head: The last link of the chain, hex; changes with every line.
        problem: What is wrong, as a sentence.
        line: The first line that is wrong, from 1.
    """

    ok: bool
    lines: int
    head: str
    problem: str | None = None
    line: int | None = None


def audit_key(data: Path) -> bytes:
    """Return the key of this user, made when there is none.

    Raises:
        StorageError: It cannot be read or made.
    """
    file = data / "audit.key"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f".audit.{secrets.token_hex(6)}")
        if not file.exists():
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(secrets.token_bytes(_KEY_BYTES))
            try:
                # A link fails where another process was first; then its key counts.
                os.link(temporary, file)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        key = file.read_bytes()
    except OSError as error:
        raise StorageError(f"{file} cannot be used ({error.strerror}); make it readable.") from error
    if len(key) != _KEY_BYTES:
        raise StorageError(f"{file} is damaged; what was recorded with it cannot be checked any more.")
    return key


class AuditChain:
    """The chain of one session, extended by what was added to the file since.

    Args:
        session: The session's file.
        key: Of `audit_key`.
    """

    def __init__(self, session: Path, key: bytes) -> None:
        self._session = session
        self._file = session.with_suffix(".d") / _CHAIN
        self._key = key
        self._offset = 0
        self._head = _START
        for _, size, link in _entries(self._file):
            self._offset += size
            self._head = link

    @property
    def head(self) -> str:
        """The last link, hex."""
        return self._head.hex()

    def extend(self) -> int:
        """Take in the whole lines that were written since; return how many.

        Raises:
            OSError: The files cannot be read or written.
        """
        entries: list[str] = []
        with self._session.open("rb") as stream:
            stream.seek(self._offset)
            for line in _whole_lines(stream):
                self._head = _link(self._key, self._head, line)
                self._offset += len(line)
                entries.append(f"{len(line)} {self._head.hex()}\n")
        if entries:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.writelines(entries)
        return len(entries)


def verify(session: Path, key: bytes) -> AuditResult:
    """Compare a session file with its chain.

    Raises:
        StorageError: There is no chain: auditing was not on.
    """
    chain = session.with_suffix(".d") / _CHAIN
    if not chain.is_file():
        raise StorageError(
            f"Nothing was recorded for {session.stem}; set audit = true in [session] before it begins."
        )
    head, count = _START, 0
    try:
        with session.open("rb") as stream:
            for number, size, link in _entries(chain, strict=True):
                line = stream.read(size) if size > 0 else b""
                if not hmac.compare_digest(_link(key, head, line), link):
                    return AuditResult(
                        False, count, head.hex(), f"line {number} is not what was written", number
                    )
                head, count = link, number
            rest = stream.read(1)
    except (OSError, ValueError) as error:
        return AuditResult(False, count, head.hex(), f"the record cannot be read ({error})", count + 1)
    if rest:
        return AuditResult(
            False, count, head.hex(), f"line {count + 1} was added without a record", count + 1
        )
    return AuditResult(True, count, head.hex())


def _link(key: bytes, before: bytes, line: bytes) -> bytes:
    return hmac.digest(key, before + line, hashlib.sha256)


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        if line.endswith(b"\n"):
            yield line


def _entries(file: Path, *, strict: bool = False) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, length and link of each entry; a damaged one ends it, or raises where ``strict``."""
    try:
        lines = file.read_text("ascii").splitlines()
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        size, _, link = line.partition(" ")
        try:
            yield number, int(size), bytes.fromhex(link)
        except ValueError:
            if strict:
                raise ValueError(f"entry {number} is damaged") from None
            return
