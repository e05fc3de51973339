"""Checkpoints: states of a workspace, kept outside of it, compared and brought back.

Small workspaces are read here (`PlainEngine`), large ones by git with a directory of aar's own (`GitEngine`).
Both keep contents under the same names, so that their states can be compared with each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from aar.config.paths import ensure
from aar.memory.checkpoint_git import EMPTY_TREE, GitEngine
from aar.memory.checkpoint_git_run import Git
from aar.memory.checkpoint_log import Checkpoint, CheckpointLog, Kind
from aar.memory.checkpoint_objects import ObjectStore
from aar.memory.checkpoint_restore import Restorer
from aar.memory.checkpoint_scan import PlainEngine
from aar.memory.checkpoint_state import Delta, Files, Limits, State, TooLargeError, compare, load_files
from aar.memory.file_lock import try_lock, unlock
from aar.protocol.errors import StorageError
from aar.protocol.ids import new_id
from aar.protocol.ports import Spawner

__all__ = ["Checkpoint", "CheckpointStore", "Delta", "GcReport", "Limits", "State"]

SMALL: Final = 2_000
"""Files up to which a workspace is read without git: faster than starting it."""
_LOCK_WAIT_S: Final = 60.0
_LOOSE_MANY: Final = 20_000


@dataclass(frozen=True, slots=True)
class GcReport:
    """What was thrown away: how many checkpoints, and the bytes of the store before and after."""

    removed: int
    kept: int
    bytes_before: int
    bytes_after: int


@dataclass
class CheckpointStore:
    """All checkpoints of one workspace.

    Attributes:
        folder: Where they are, outside of the workspace; made when the first is taken.
        workspace: Root of the project.
        spawner: Starts git.
        limits: What is kept.
        excludes: The user's own files of ignore patterns.
        use_git: Whether git may be used.
        small: Files up to which git is not needed.
    """

    folder: Path
    workspace: Path
    spawner: Spawner
    limits: Limits = field(default_factory=Limits)
    excludes: tuple[Path, ...] = ()
    use_git: bool = True
    small: int = SMALL

    def __post_init__(self) -> None:
        self.objects = ObjectStore(self.folder / "git" / "objects")
        self._log = CheckpointLog(self.folder / "log.jsonl")
        self._busy = asyncio.Lock()
        self._ready = False
        self._git: GitEngine | None = None
        self._runner: Git | None = None
        program = shutil.which("git") if self.use_git else None
        if program is not None and not Path(program).resolve().is_relative_to(self.workspace):
            self._runner = Git(str(Path(program).absolute()), self.folder / "git", self.spawner)
            self._git = GitEngine(self._runner, self.workspace, self.objects, self.limits, self.excludes)
        plain = (
            replace(self.limits, max_files=min(self.small, self.limits.max_files))
            if self._git
            else self.limits
        )
        self._plain: PlainEngine | None = PlainEngine(self.workspace, self.objects, plain)

    # --- taking ------------------------------------------------------------------------------------------

    async def capture(
        self, kind: Kind, *, session_id: str = "", call_id: str = "", of: str = "", label: str = ""
    ) -> Checkpoint:
        """Keep the present state of the workspace.

        Raises:
            StorageError: It cannot be kept; the message says why.
        """
        async with self._locked():
            name = await self._state()
            checkpoint = Checkpoint(new_id(), kind, name, time.time(), session_id, call_id, of, label)
            try:
                self._log.append(checkpoint)
            except OSError as error:
                raise StorageError(f"The list of checkpoints cannot be written: {error.strerror}.") from error
        return checkpoint

    async def peek(self) -> str:
        """Return the name of the present state without adding it to the list.

        Raises:
            StorageError: It cannot be kept.
        """
        async with self._locked():
            return await self._state()

    async def _state(self) -> str:
        try:
            state = await self._taken()
            return await asyncio.to_thread(self.objects.put, state.to_bytes())
        except TooLargeError:
            raise StorageError(
                f"{self.workspace} has more than {self.limits.max_files:,} files, so no checkpoints are "
                "kept; ignore what is not source, or raise [checkpoints] max_files."
            ) from None
        except OSError as error:
            raise StorageError(f"A checkpoint cannot be kept: {error.strerror or error}.") from error

    async def _taken(self) -> State:
        if self._plain is not None and not (self._git and (self.folder / "large").exists()):
            try:
                return await self._plain.capture()
            except TooLargeError:
                if self._git is None:
                    raise
        assert self._git is not None
        if self._plain is not None:
            (self.folder / "large").touch()
            self._plain = None
        return await self._git.capture()

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        """Be the only one who writes here, in this process and among all; locks of the dead are void."""
        async with self._busy:
            fd = await self._lock()
            try:
                if self._runner is not None:
                    self._runner.clear_locks()
                yield
            finally:
                unlock(fd)
                os.close(fd)

    async def _lock(self) -> int:
        if not self._ready:
            ensure(self.folder)
        try:
            if not self._ready and self._runner is not None:
                self._runner.prepare()
            self._ready = True
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {error.strerror}.") from error
        deadline = time.monotonic() + _LOCK_WAIT_S
        try:
            while not try_lock(fd):
                if time.monotonic() > deadline:
                    raise StorageError(
                        "Another aar has been busy with this folder's checkpoints for a minute."
                    )
                await asyncio.sleep(0.01)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def put(self, data: bytes) -> str | None:
        """Keep one content; ``None`` when it is larger than what is kept, or cannot be written."""
        if len(data) > self.limits.max_file_bytes:
            return None
        try:
            if not self.folder.exists():
                ensure(self.folder)
            return self.objects.put(data)
        except (OSError, StorageError):
            return None

    # --- looking -----------------------------------------------------------------------------------------

    def list(self, session_id: str | None = None) -> list[Checkpoint]:
        """Return the checkpoints, the oldest first; of one session where it is named.

        Raises:
            StorageError: The list cannot be read.
        """
        return [item for item in self._log.all() if session_id is None or item.session_id == session_id]

    def get(self, prefix: str) -> Checkpoint:
        """Return a checkpoint by its id, which may be shortened at either end as long as it is unique.

        Raises:
            StorageError: There is none, or more than one.
        """
        wanted = prefix.upper()
        found = [c for c in self._log.all() if c.id == wanted] or [
            c for c in self._log.all() if wanted and (c.id.startswith(wanted) or c.id.endswith(wanted))
        ]
        if len(found) != 1:
            problem = (
                f"There is no checkpoint {prefix!r}" if not found else f"{prefix!r} names several checkpoints"
            )
            raise StorageError(f"{problem}; `aar checkpoints list` shows them.")
        return found[0]

    def after(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the state in which the step of a checkpoint left the workspace, if it was kept."""
        found = [c for c in self._log.all() if c.kind == "after" and c.of == checkpoint_id]
        return found[-1] if found else None

    async def state(self, name: str) -> State:
        """Return a kept state.

        Raises:
            StorageError: It was thrown away, or is damaged.
        """
        return State.from_bytes((await self.read([name]))[name])

    async def compare(self, old: str, new: str) -> list[Delta]:
        """Return how two kept states differ, in path order.

        Raises:
            StorageError: One of them cannot be read.
        """
        if old == new:
            return []
        before, after = await self.state(old), await self.state(new)
        if before.engine == after.engine == "git" and self._git is not None:
            deltas: list[Delta] = []
            for prefix in sorted(before.roots.keys() | after.roots.keys()):
                trees = before.roots.get(prefix, EMPTY_TREE), after.roots.get(prefix, EMPTY_TREE)
                deltas += await self._git.compare(*trees, prefix)
            return sorted(_merged(deltas), key=lambda delta: delta.path)
        return compare(await self._files(before), await self._files(after))

    async def _files(self, state: State) -> Files:
        if state.engine == "plain":
            name = state.roots[""]
            return load_files((await self.read([name]))[name])
        if self._git is None:
            raise StorageError("This checkpoint was made with git, which is not there any more; install it.")
        files: Files = {}
        for prefix, tree in state.roots.items():
            files |= await self._git.files(tree, prefix)
        return files

    async def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return contents by their names.

        Raises:
            StorageError: One cannot be read.
        """
        wanted = list(dict.fromkeys(names))
        await self._unpack(wanted)
        return {name: self.objects.get(name) for name in wanted}

    async def _unpack(self, names: Sequence[str]) -> None:
        if self._git is not None and any(not self.objects.has(name) for name in names):
            await self._git.unpack(names)

    # --- bringing back -----------------------------------------------------------------------------------

    async def restore(
        self,
        deltas: Sequence[Delta],
        *,
        made: Sequence[str] = (),
        gone: Sequence[str] = (),
        beside: Sequence[Delta] = (),
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Write the ``new`` side of ``deltas``; first save the ``old`` side of ``beside`` next to each file.

        Returns:
            Paths that are as wanted, problems by path, and the names of the copies by path.
        """
        entries = [*(d.new for d in deltas), *(d.old for d in beside)]
        await self._unpack([entry.blob for entry in entries if entry is not None])

        def work() -> tuple[list[str], dict[str, str], dict[str, str]]:
            restorer = Restorer(self.workspace, self.objects.get)
            copies = {
                delta.path: restorer.save_beside(delta.path, self.objects.get(delta.old.blob), delta.old.mode)
                for delta in beside
                if delta.old is not None
            }
            return restorer.apply(deltas, made, gone), restorer.problems, copies

        async with self._locked():
            try:
                return await asyncio.to_thread(work)
            except OSError as error:
                raise StorageError(f"Files could not be brought back: {error.strerror or error}.") from error

    # --- keeping it small --------------------------------------------------------------------------------

    def wants_gc(self) -> bool:
        """Tell cheaply whether many loose objects wait to be packed, or a day has passed."""
        try:
            last = (self.folder / "gc").stat().st_mtime
        except OSError:
            last = 0.0
        one = self.objects.folder / "17"  # as git does: one of 256 folders stands for all
        count = len(list(one.iterdir())) if one.is_dir() else 0
        return count * 256 > _LOOSE_MANY or (count > 0 and time.time() - last > 86_400)

    async def gc(self, *, keep_days: float = 30, quota_bytes: int = 0) -> GcReport:
        """Throw away checkpoints older than ``keep_days``, then the oldest beyond ``quota_bytes`` (0: none).

        Raises:
            StorageError: The store cannot be written.
        """
        async with self._locked():
            before = await asyncio.to_thread(self.objects.size)
            every = self._log.all()
            edge = time.time() - keep_days * 86_400
            kept = [item for item in every if item.ts >= edge]
            size = (
                await self._sweep(kept)
                if len(kept) < len(every) or not quota_bytes or before > quota_bytes
                else before
            )
            while quota_bytes and size > quota_bytes and len(kept) > 1:
                kept = kept[(len(kept) + 1) // 2 :]
                size = await self._sweep(kept)
            (self.folder / "gc").touch()
            return GcReport(len(every) - len(kept), len(kept), before, size)

    async def _sweep(self, kept: list[Checkpoint]) -> int:
        """Remove what ``kept`` does not need; return the bytes that remain."""
        self._log.replace(kept)
        roots: set[str] = set()
        blobs: set[str] = set()
        for name in {item.state for item in kept}:
            try:
                state = await self.state(name)
            except StorageError:
                continue
            blobs.add(name)
            roots |= set(state.roots.values())
            if state.engine == "plain":
                blobs |= {entry.blob for entry in (await self._files(state)).values()}
        if self._runner is not None:
            await self._pack(roots | blobs)
        else:
            keep = roots | blobs
            await asyncio.to_thread(self._drop, [name for name in self.objects.names() if name not in keep])
        return await asyncio.to_thread(self.objects.size)

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                self.objects.path(name).unlink()

    async def _pack(self, names: set[str]) -> None:
        assert self._runner is not None
        # In place of one ref a name: git takes refs from this one file too. Format: gitrepository-layout(5).
        lines = [f"{name} refs/keep/{name}\n" for name in sorted(names - {EMPTY_TREE})]
        head = "# pack-refs with: peeled fully-peeled sorted \n"
        (self._runner.folder / "packed-refs").write_text(head + "".join(lines), "ascii")
        # git keeps what its index names; those of nested repositories it does not know, they are made anew.
        for index in self._runner.folder.glob("index-*"):
            index.unlink()
        if (main := self._runner.folder / "index").exists():
            os.utime(main)  # other processes must not trust the trees that they remember
        if self._git is not None:
            self._git.forget()
        await self._runner.demand("repack", "-a", "-d", "-q")
        await self._runner.demand("prune", "--expire=now")


def _merged(deltas: list[Delta]) -> list[Delta]:
    """Join what two repositories say of one path: a file that moved from one to the other."""
    by_path: dict[str, Delta] = {}
    for delta in deltas:
        other = by_path.get(delta.path)
        if other is not None:
            delta = Delta(delta.path, other.old or delta.old, other.new or delta.new)
        by_path[delta.path] = delta
    return [delta for delta in by_path.values() if delta.old != delta.new]
