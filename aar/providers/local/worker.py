"""The process that holds the embedded model: ``python -m aar.providers.local.worker SETTINGS``.

It outlives the run that started it, so that the next one finds the model loaded and its prompt evaluated.
It listens on a Unix socket in a private folder and speaks JSON, one object a line:

- in: ``{"op": "complete", "id": …, "messages": […], "max_tokens": …, "temperature": …, "stop": […],
  "extra": {…}, "json_schema": …, "keep_warm": seconds}``, ``{"op": "cancel", "id": …}``,
  ``{"op": "status", "id": …}``, ``{"op": "retire"}``;
- out, each with the ``id``: ``{"progress": text}``, ``{"prompt": {"processed", "total", …}}``,
  ``{"text": …}`` and at the end one of ``{"done": {…}}`` and ``{"error": {"kind", "message"}}``.

SETTINGS is a JSON object: ``socket``, ``folder``, ``key``, ``model``, ``n_ctx``, ``threads``, ``prefix_dir``,
``keep_warm``, and ``engine`` (``module:callable``) for tests.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

_MAX_LINE = 64 * 1024 * 1024
_STARTUP_GRACE = 30.0
"""Seconds in which the first client must come, whatever ``keep_warm`` says."""

_CANCELLED_KEPT = 64


class Worker:
    """Serves one engine to the connections of one user."""

    def __init__(self, settings: Mapping[str, Any], listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._engine: Any = None
        self._failure: dict[str, str] | None = None
        self._loaded = threading.Event()
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._open = 0
        self._busy = 0
        self._served = False
        self._keep_warm = float(settings["keep_warm"])
        self._last = time.monotonic()

    def run(self) -> None:
        """Serve until nobody came for ``keep_warm`` seconds."""
        threading.Thread(target=self._load, daemon=True).start()
        self._listener.settimeout(0.2)
        while not self._finished():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                if not _same_user(connection):
                    connection.close()
                    continue
                connection.settimeout(None)
                with self._state:
                    self._open += 1
                    self._served = True
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Remove what the engine left on disk."""
        closer = getattr(self._engine, "close", None)
        if closer is not None:
            closer()

    def _load(self) -> None:
        try:
            module, _, name = self._settings["engine"].partition(":")
            self._engine = getattr(importlib.import_module(module), name)(self._settings)
        except Exception as error:
            kind = getattr(error, "kind", "provider_internal")
            self._failure = {"kind": kind, "message": str(error) or repr(error)}
        with self._state:
            self._last = time.monotonic()
        self._loaded.set()

    def _finished(self) -> bool:
        with self._state:
            idle = time.monotonic() - self._last
            if self._busy or not self._loaded.is_set():
                return False
            if self._failure is not None:
                return idle > 1 and (not self._open or idle > _STARTUP_GRACE)
            if self._keep_warm > 0:
                return idle > self._keep_warm
            return not self._open and (self._served or idle > _STARTUP_GRACE)

    def _serve(self, connection: socket.socket) -> None:
        client = _Client(connection)
        reader = threading.Thread(target=client.read, daemon=True)
        reader.start()
        try:
            while (request := client.next()) is not None:
                self._handle(client, request)
        except OSError:
            client.gone.set()
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            reader.join()
            client.close()
            with self._state:
                self._open -= 1
                self._last = max(self._last, time.monotonic() if self._keep_warm > 0 else self._last)

    def _handle(self, client: _Client, request: dict[str, Any]) -> None:
        identity = request.get("id")
        match request.get("op"):
            case "complete":
                with self._state:
                    self._busy += 1
                    self._keep_warm = float(request.get("keep_warm", self._keep_warm))
                try:
                    self._complete(client, identity, request)
                finally:
                    with self._state:
                        self._busy -= 1
                        self._last = time.monotonic()
            case "status":
                client.send(identity, {"done": self._status()})
            case "retire":
                with self._state:
                    self._keep_warm = 0.0
            case other:
                message = f"unknown op {other!r}"
                client.send(identity, {"error": {"kind": "invalid_request", "message": message}})

    def _complete(self, client: _Client, identity: Any, request: dict[str, Any]) -> None:
        def cancelled() -> bool:
            return client.is_cancelled(identity)

        def emit(event: Mapping[str, Any]) -> None:
            client.send(identity, event)

        if not self._loaded.is_set():
            client.send(identity, {"progress": "loading the model"})
            while not self._loaded.wait(0.05):
                if cancelled():
                    return
        if self._failure is not None:
            client.send(identity, {"error": self._failure})
            return
        if not self._take_turn(client, identity):
            return
        try:
            done = self._engine.generate(request, emit, cancelled)
            client.send(identity, {"done": done})
        except OSError:
            raise
        except Exception as error:
            kind = getattr(error, "kind", "provider_internal")
            client.send(identity, {"error": {"kind": kind, "message": str(error) or repr(error)}})
        finally:
            self._turn.release()

    def _take_turn(self, client: _Client, identity: Any) -> bool:
        if self._turn.acquire(blocking=False):
            return True
        client.send(identity, {"progress": "waiting for another request to the model"})
        while not client.is_cancelled(identity):
            if self._turn.acquire(timeout=0.05):
                return True
        return False

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "loaded": self._loaded.is_set() and self._failure is None,
            "memory": _memory(),
            "key": self._settings["key"],
        }


class _Client:
    """One connection: requests in order, cancels at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writing = threading.Lock()
        self._ready = threading.Condition()
        self._requests: deque[dict[str, Any]] = deque()
        self._cancelled: deque[Any] = deque(maxlen=_CANCELLED_KEPT)
        self.gone = threading.Event()

    def read(self) -> None:
        """Read lines until the client has gone."""
        with suppress(OSError), self._connection.makefile("rb") as stream:
            while line := stream.readline(_MAX_LINE):
                request = _parse(line)
                if request is None:
                    break
                with self._ready:
                    if request.get("op") == "cancel":
                        self._cancelled.append(request.get("id"))
                    else:
                        self._requests.append(request)
                    self._ready.notify()
        with self._ready:
            self.gone.set()
            self._ready.notify()

    def next(self) -> dict[str, Any] | None:
        """Wait for the next request; ``None`` when the client has gone and all it asked was handled."""
        with self._ready:
            self._ready.wait_for(lambda: self._requests or self.gone.is_set())
            return self._requests.popleft() if self._requests else None

    def is_cancelled(self, identity: Any) -> bool:
        """Tell whether nobody waits for the answer to ``identity`` any more."""
        return self.gone.is_set() or identity in self._cancelled

    def send(self, identity: Any, event: Mapping[str, Any]) -> None:
        """Write one event.

        Raises:
            OSError: The client has gone.
        """
        line = json.dumps({"id": identity, **event}, ensure_ascii=True, separators=(",", ":"))
        with self._writing:
            self._connection.sendall(line.encode() + b"\n")

    def close(self) -> None:
        self._connection.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        request: Any = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", request) if isinstance(request, dict) else None


def _same_user(connection: socket.socket) -> bool:
    """Check the peer by the kernel's word where it gives one; elsewhere the folder's mode protects."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)[1] == os.geteuid()


def _memory() -> dict[str, int]:
    """Return bytes of memory by kind (``RssAnon`` is the worker's own, ``RssFile`` the mapped weights)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith(("VmRSS", "RssAnon", "RssFile")))
    return {field[0].rstrip(":"): int(field[1]) * 1024 for field in fields}


def _listen(path: str) -> socket.socket:
    """Take the place of a dead worker's socket. The caller's lock keeps two from doing so at once."""
    with suppress(FileNotFoundError):
        Path(path).unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    return listener


def _detach() -> None:
    """Leave the starter: it waits only until the socket is there, and nobody has to reap us."""
    if os.fork():
        os._exit(0)
    os.setsid()


def main() -> None:
    """Listen, detach, serve."""
    settings = json.loads(sys.argv[1])
    os.umask(0o077)
    path = settings["socket"]
    listener = _listen(path)
    inode = Path(path).stat().st_ino
    _detach()
    worker = Worker(settings, listener)
    try:
        worker.run()
    finally:
        # The engine's files first: while our socket is there, nobody starts another worker.
        worker.close()
        with suppress(OSError):
            if Path(path).stat().st_ino == inode:
                Path(path).unlink()
        listener.close()
        # llama.cpp's threads would be joined one by one; there is nothing left to save.
        os._exit(0)


if __name__ == "__main__":
    main()
