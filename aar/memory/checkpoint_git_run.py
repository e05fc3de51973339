"""Calls of git on a directory of aar's own: no refs, hooks, filters or settings of the user take part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aar.config.files import write_atomic
from aar.protocol.errors import StorageError
from aar.protocol.ports import Spawner, SpawnRequest, SpawnResult

_MAX_OUTPUT: Final = 1 << 28
_TIMEOUT_S: Final = 300

_CONFIG: Final = """\
[core]
	repositoryformatversion = 0
	bare = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	autocrlf = false
	safecrlf = false
	fsmonitor = false
	untrackedCache = false
	splitIndex = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	protectHFS = false
	protectNTFS = false
	looseCompression = 1
	compression = 1
	logAllRefUpdates = false
	preloadIndex = true
[gc]
	auto = 0
[maintenance]
	auto = false
[pack]
	threads = 1
	window = 5
[index]
	version = 4
"""
_ATTRIBUTES: Final = "* -text !eol -ident -filter !working-tree-encoding -diff -merge\n"
"""Stands above every ``.gitattributes`` of the workspace: contents are kept byte for byte."""


class Git:
    """Runs git as a helper, with aar's own directory and a scrubbed environment.

    Args:
        program: Path of git.
        folder: The git directory.
        spawner: Starts it.
    """

    def __init__(self, program: str, folder: Path, spawner: Spawner) -> None:
        self.folder = folder
        self._program = program
        self._spawner = spawner

    def prepare(self) -> None:
        """Make the git directory; git itself would copy templates of the user into it."""
        for name in ("objects/info", "objects/pack", "refs/keep", "info"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("config", _CONFIG), ("info/attributes", _ATTRIBUTES), ("HEAD", "ref: refs/heads/none\n"),
        ):  # fmt: skip
            file = self.folder / name
            if not file.is_file() or file.read_text("utf-8", "replace") != text:
                write_atomic(file, text.encode(), durable=False)

    def clear_locks(self) -> None:
        """Remove locks that a killed git left; the caller holds the store's own lock."""
        for lock in (*self.folder.glob("*.lock"), *self.folder.glob("refs/keep/*.lock")):
            lock.unlink(missing_ok=True)

    async def run(
        self,
        *arguments: str,
        root: Path | None = None,
        index: str = "index",
        stdin: bytes = b"",
        spool: Path | None = None,
    ) -> SpawnResult:
        """Run one command of git in ``root`` (else in its own folder)."""
        env = {
            "GIT_DIR": str(self.folder),
            "GIT_INDEX_FILE": str(self.folder / index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }
        if root is not None:
            env["GIT_WORK_TREE"] = str(root)
        request = SpawnRequest(
            (self._program, *arguments),
            root or self.folder,
            env=env,
            kind="helper",
            timeout_s=_TIMEOUT_S,
            stdin=stdin,
            max_output=_MAX_OUTPUT if spool is None else 1,
            spool=spool,
            merge_stderr=False,
        )
        try:
            return await self._spawner.run(request)
        except OSError as error:
            raise StorageError(f"git cannot be started for a checkpoint: {error}.") from error

    async def demand(
        self,
        *arguments: str,
        root: Path | None = None,
        index: str = "index",
        stdin: bytes = b"",
        spool: Path | None = None,
    ) -> bytes:
        """Run git and return its output.

        Raises:
            StorageError: It failed.
        """
        result = await self.run(*arguments, root=root, index=index, stdin=stdin, spool=spool)
        if result.exit_code != 0 or (result.truncated and spool is None):
            why = complaints(result) or [f"exit code {result.exit_code}"]
            raise StorageError(f"git {arguments[0]} failed for a checkpoint: {why[-1]}")
        return result.output


def complaints(result: SpawnResult) -> list[str]:
    """Return the lines that git wrote to standard error."""
    return result.stderr.decode("utf-8", "replace").strip().splitlines()
