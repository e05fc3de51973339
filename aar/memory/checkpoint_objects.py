"""Contents of files by the hash of what they hold, in git's own form, so that git can pack and read them.

Loose objects are those of gitformat-loose(5): ``objects/ab/cdef…``, zlib over ``blob SIZE NUL content``,
named by SHA-1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zlib
from pathlib import Path

from aar.protocol.errors import StorageError

_LEVEL = 1


def blob_id(data: bytes) -> str:
    """Return the name that git gives ``data``."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class ObjectStore:
    """Loose objects below one folder. Many processes may write at once: equal names hold equal bytes.

    Args:
        folder: The ``objects`` folder of a git directory; made when something is put into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return where the object ``name`` lies when it is loose."""
        return self.folder / name[:2] / name[2:]

    def has(self, name: str) -> bool:
        """Tell whether the object is there as a loose one."""
        return self.path(name).is_file()

    def put(self, data: bytes) -> str:
        """Keep ``data`` and return its name; a reader sees all of it or nothing.

        Raises:
            OSError: It cannot be written.
        """
        name = blob_id(data)
        target = self.path(name)
        if target.is_file():
            with contextlib.suppress(OSError):
                os.utime(target)  # what is used again must not be swept away as old
            return name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f"tmp_obj_{secrets.token_hex(6)}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
            with os.fdopen(fd, "wb") as file:
                file.write(zlib.compress(b"blob %d\0" % len(data) + data, _LEVEL))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return name

    def get(self, name: str) -> bytes:
        """Return the content of a loose object.

        Raises:
            StorageError: It is not there or damaged.
        """
        try:
            head, _, data = zlib.decompress(self.path(name).read_bytes()).partition(b"\0")
        except (OSError, zlib.error) as error:
            raise StorageError(
                f"A kept content ({name[:12]}) cannot be read; this file cannot be brought back."
            ) from error
        if not head.startswith(b"blob ") or blob_id(data) != name:
            raise StorageError(f"A kept content ({name[:12]}) is damaged; this file cannot be brought back.")
        return data

    def names(self) -> list[str]:
        """Return the names of all loose objects."""
        return [
            folder.name + entry.name
            for folder in self.folder.glob("[0-9a-f][0-9a-f]")
            for entry in folder.iterdir()
            if len(entry.name) == 38
        ]

    def size(self) -> int:
        """Return the bytes that all objects take, packs included."""
        total = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += Path(folder, name).lstat().st_size
        return total
