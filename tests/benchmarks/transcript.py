"""Measure the transcript: python -m tests.benchmarks.transcript [blocks].

An app of the transcript alone at 120x40, drawn to a console that counts bytes. CPU time is this process's alone:
the figure to trust on a busy machine. Budgets are those of the design: 10 ms for appending, 200 ms for resizing,
1 s for 42 KB of Markdown with keys answered within 50 ms.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from statistics import median

from textual.app import App, ComposeResult

from aar.transports.tui.blocks import AnswerBlock, AnyBlock, ToolBlock, UserBlock
from aar.transports.tui.presenter import Changes
from aar.transports.tui.transcript import Transcript

_ANSWER = (
    "## A heading\n\nSome text with **bold**, `code` and a [link](https://example.org/page) that is long enough to "
    "be wrapped at the edge of the screen.\n\n- one item\n- another item\n  - inside it\n\n"
    "```python\ndef add(a: int, b: int) -> int:\n    \"\"\"Add.\"\"\"\n    return a + b\n```\n\n"
    "| name | value |\n|------|------:|\n| one | 1 |\n| two | 2 |\n\n"
)  # fmt: skip


class _Screen(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript()

    @property
    def view(self) -> Transcript:
        return self.query_one(Transcript)


def _answer(key: int, text: str, *, live: bool = False) -> AnswerBlock:
    block = AnswerBlock(key, live=live)
    block.add(text)
    return block


def _blocks(count: int) -> list[AnyBlock]:
    blocks: list[AnyBlock] = []
    for key in range(1, count + 1):
        if key % 5 == 1:
            blocks.append(UserBlock(key, text=f"Do the thing number {key}"))
        elif key % 5 == 2:
            blocks.append(_answer(key, _ANSWER))
        else:
            output = "a line of output\n" * 40
            blocks.append(
                ToolBlock(key, name="bash", arguments={"command": "make"}, status="done", output=output)
            )
    return blocks


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _draw(app: _Screen) -> None:
    app.view.render_lines(app.view.region.reset_offset)


def _timed(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return 1000 * (time.process_time() - started)


async def _stream(
    app: _Screen, blocks: list[AnyBlock], size: int, frame_s: float
) -> tuple[float, float, float]:
    """Stream text as fast as the loop takes it; return CPU seconds, seconds and the longest wait of a key in ms."""
    source = (_ANSWER * (size // len(_ANSWER) + 1))[:size]
    live = _answer(blocks[-1].key + 1, "", live=True)
    blocks.append(live)
    app.view.apply(Changes(appended=[live]), blocks)
    waits: list[float] = []
    probe = asyncio.create_task(_probe(waits))
    cpu, started = time.process_time(), time.perf_counter()
    shown = started
    for start in range(0, size, 14):
        live.add(source[start : start + 14])
        if start % 140 == 0:
            await asyncio.sleep(0)
        if time.perf_counter() - shown >= frame_s:
            app.view.apply(Changes(changed={live.key}), blocks)
            shown = time.perf_counter()
    live.settle(source, 1)
    app.view.apply(Changes(changed={live.key}), blocks)
    while app.view.document.unfinished:
        await asyncio.sleep(0.001)
    taken = time.process_time() - cpu, time.perf_counter() - started
    probe.cancel()
    return *taken, 1000 * max(waits, default=0.0)


async def _probe(waits: list[float]) -> None:
    """Note how long the loop keeps others waiting, as it would a key."""
    while True:
        asked = time.perf_counter()
        await asyncio.sleep(0)
        waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.001)


async def measure(count: int) -> None:
    """Print all figures."""
    app, blocks = _Screen(), _blocks(count)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        before = _memory()
        print(
            f"open {count:,} blocks: {_timed(lambda: app.view.apply(Changes(reset=True), blocks)):.1f} ms CPU"
        )
        await pilot.pause()
        times: list[float] = []
        for _ in range(50):
            block = _answer(blocks[-1].key + 1, "Done.")
            blocks.append(block)
            times.append(
                _timed(lambda block=block: (app.view.apply(Changes(appended=[block]), blocks), _draw(app)))
            )
        print(f"append and draw: median {median(times):.2f} ms, worst {max(times):.2f} ms CPU (budget 10)")
        times = []
        for width in (90, 130, 60, 120):
            wanted = width
            act = lambda wanted=wanted: (app.view.viewport.resize(wanted, 40), _draw(app))  # noqa: E731
            times.append(_timed(act))
        print(f"resize and draw: median {median(times):.1f} ms, worst {max(times):.1f} ms CPU (budget 200)")
        for size in (4_000, 42_000, 160_000):
            cpu, wall, longest = await _stream(app, blocks, size, 1 / 30)
            print(
                f"stream {size:,} characters: {cpu:.2f} s CPU, {wall:.2f} s, a key waits at most {longest:.0f} ms"
            )
        twice = _blocks(2 * count)
        app.view.apply(Changes(reset=True), twice)
        while app.view.viewport.top:
            app.view.scroll_lines(-38)
            _draw(app)
        told = f"{_memory():.0f} MiB ({before:.0f} before the first)"
        print(f"{2 * count:,} blocks, all of them scrolled through: {told}")
        app.view.document.folds.set_all("full")
        app.view._refold()
        for _ in range(400):
            app.view.scroll_lines(-60)
        kept = app.view.document.kept_lines
        print(
            f"memory: {before:.0f} MiB, after all that and 400 screens of scrolling {_memory():.0f} MiB; {kept:,} lines kept"
        )


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
