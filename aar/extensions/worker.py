"""The thread of one extension: its code runs there, within a time; what it prints goes to nobody's screen."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import ContextVar
from typing import Any, TextIO

_ANSWER_S = 0.3
"""Seconds in which a thread that works must take notice of a message."""
_MAX_PRINTED = 2000

Capture = Callable[[str], None]
_capture: ContextVar[Capture | None] = ContextVar("aar_extension_output", default=None)


class ExtensionTroubleError(Exception):
    """Code of an extension failed; ``str(error)`` says how, in one clause."""


class ExtensionStuckError(ExtensionTroubleError):
    """Nothing can be asked of an extension until an earlier call of it comes back."""


class _Interrupted(BaseException):
    """Raised inside code that did not end in time; nothing that catches `Exception` keeps it."""


class Worker:
    """Runs the code of one extension in a thread of its own, which ends with the process.

    A thread cannot be killed: what is stuck is interrupted as soon as it comes back from the call in which
    it waits, and until then all else that is asked of this extension fails at once.

    Args:
        name: Of the extension.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.printed = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stuck = False
        self._closed = False
        self._thread = threading.Thread(target=self._live, name=f"aar-extension-{name}", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def stuck(self) -> bool:
        """Whether code of the extension does not come back."""
        return self._stuck

    def _live(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._ready.set()
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_ANSWER_S))
        finally:
            loop.close()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Begin a call; its result may be awaitable.

        Raises:
            ExtensionTroubleError: The extension is stuck, or was put away.
        """
        if self._stuck:
            raise ExtensionStuckError("an earlier call of it has not come back")
        if self._closed or self._loop is None:
            raise ExtensionTroubleError("it was put away")
        return asyncio.run_coroutine_threadsafe(self._run(function, arguments), self._loop)

    async def call(self, function: Callable[..., Any], *arguments: Any, seconds: float | None) -> Any:
        """Run ``function`` and return what it returns.

        Raises:
            ExtensionTroubleError: It took longer than ``seconds``, or called ``sys.exit``.
            Exception: What it raised.
        """
        future = self.submit(function, *arguments)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise
            self._give_up(future)
            raise ExtensionTroubleError(f"it took longer than {seconds:g} s") from None
        except asyncio.CancelledError:
            self._give_up(future)
            raise

    def call_now(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Do the same as `call`, and wait for it where nothing can be awaited."""
        return self.wait_for(self.submit(function, *arguments), seconds, seconds)

    def wait_for(self, future: Future[Any], left_s: float, seconds: float) -> Any:
        """Return the result of a call that `submit` began.

        Args:
            future: Of the call.
            left_s: Seconds to wait now.
            seconds: That the call had in all, for the message.

        Raises:
            ExtensionTroubleError: It took longer, or called ``sys.exit``.
            Exception: What it raised.
        """
        try:
            return future.result(left_s)
        except FutureTimeout:
            if future.done() and not future.cancelled():
                raise
            self._give_up(future)
            raise ExtensionTroubleError(f"it took longer than {seconds:g} s") from None
        except FutureCancelled:
            raise ExtensionTroubleError("it was put away") from None

    async def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        _capture.set(self._take_output)
        try:
            result = function(*arguments)
            return await result if inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:
            raise ExtensionTroubleError(f"it tried to end aar ({type(error).__name__})") from None
        except _Interrupted:
            raise ExtensionTroubleError("it was interrupted") from None

    def _take_output(self, text: str) -> None:
        self.printed = (self.printed + text)[-_MAX_PRINTED:]

    def take_printed(self) -> str:
        """Return what the extension printed since the last time."""
        text, self.printed = self.printed, ""
        return text.strip()

    def _give_up(self, future: Future[Any]) -> None:
        """Cancel a call; where the thread takes no notice, interrupt it."""
        future.cancel()
        answered = threading.Event()
        loop = self._loop
        if loop is None or self._closed:
            return
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # closed meanwhile
            return
        watch = threading.Timer(_ANSWER_S, self._demand, (answered,))
        watch.daemon = True
        watch.start()

    def _demand(self, answered: threading.Event) -> None:
        if answered.is_set():
            return
        self._stuck = True
        self._interrupt()
        # Where it waits inside C code this may take as long as that takes.
        answered.wait()
        self._stuck = False

    def _interrupt(self) -> None:
        import ctypes

        ident = self._thread.ident
        if ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_Interrupted))

    def close(self) -> None:
        """End the thread, as soon as it comes back; waits a moment for it."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
        if not self._stuck and threading.current_thread() is not self._thread:
            self._thread.join(_ANSWER_S)


class _Door:
    """Stands in front of a standard stream: code of extensions does not get through."""

    def __init__(self, stream: Any) -> None:
        self.aar_stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.aar_stream, name)

    def __iter__(self) -> Any:
        return iter(self.aar_stream)


class _OutDoor(_Door):
    def write(self, text: str) -> int:
        capture = _capture.get()
        if capture is None:
            return int(self.aar_stream.write(text) or 0)
        capture(str(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


class _InDoor(_Door):
    def fileno(self) -> int:
        if _capture.get() is not None:
            # So that input() reads here, and not from the terminal.
            raise OSError("extensions have no standard input")
        return int(self.aar_stream.fileno())

    def readline(self, *size: int) -> str:
        return "" if _capture.get() is not None else str(self.aar_stream.readline(*size))

    def read(self, *size: int) -> str:
        return "" if _capture.get() is not None else str(self.aar_stream.read(*size))

    def __iter__(self) -> Any:
        return iter(()) if _capture.get() is not None else iter(self.aar_stream)


def guard_streams() -> Callable[[], None]:
    """Let nothing that extensions print, or read, pass standard streams; return what undoes this."""
    before: dict[str, TextIO] = {}
    for name, kind in (("stdout", _OutDoor), ("stderr", _OutDoor), ("stdin", _InDoor)):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Door):
            before[name] = stream
            setattr(sys, name, kind(stream))

    def undo() -> None:
        for name, stream in before.items():
            door = getattr(sys, name)
            if isinstance(door, _Door) and door.aar_stream is stream:
                setattr(sys, name, stream)

    return undo
