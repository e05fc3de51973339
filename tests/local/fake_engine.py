"""An engine for the worker's life cycle: it needs no weights and answers as the prompt tells it to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class EngineRefusalError(Exception):
    kind = "context_overflow"


class FakeEngine:
    """``say WORDS`` answers them; ``count N`` streams N numbers, one each 20 ms; ``refuse`` fails.

    ``hold`` answers when the file "go" is there. What it does is told by files in the folder of prefixes.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._folder = Path(settings["prefix_dir"])
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "starts").open("a") as file:
            file.write(f"{os.getpid()}\n")
        if Path(settings["model"]).name == "broken.gguf":
            raise ValueError("this file is broken")

    def generate(
        self,
        request: Mapping[str, Any],
        emit: Callable[[dict[str, Any]], None],
        cancelled: Callable[[], bool],
    ) -> dict[str, Any]:
        command, _, rest = request["messages"][-1]["content"].partition(" ")
        if command == "refuse":
            raise EngineRefusalError("The prompt has 9 tokens and the context 8.")
        if command == "say":
            emit({"text": rest})
            return self._done("stop", 1)
        (self._folder / "begun").touch()
        if command == "hold":
            while not (self._folder / "go").exists() and not cancelled():
                time.sleep(0.005)
            return self._done("stop", 1)
        for number in range(int(rest)):
            if cancelled():
                (self._folder / "cancelled").write_text(str(time.time()))
                return self._done("cancelled", number)
            emit({"text": f"{number} "})
            time.sleep(0.02)
        return self._done("length", int(rest))

    @staticmethod
    def _done(stop: str, output: int) -> dict[str, Any]:
        return {"stop": stop, "input": 3, "output": output, "cache_read": 5, "timings": {}}
