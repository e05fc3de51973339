"""A `ToolContext` over a real folder, and a way to call a built-in tool as the executor does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aar.protocol.events import PlanItem
from aar.protocol.ports import ToolContext
from aar.protocol.tool import ToolOutcome
from aar.safety.files import WorkspaceFiles
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.registry import ToolRegistry
from aar.tools.schema import validate_arguments
from tests.support.plain_spawner import PlainSpawner

REGISTRY = ToolRegistry(builtin_tools())


@dataclass
class Blobs:
    """A checkpointer that only keeps blobs."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])

    async def before(self, call_id: str, paths: Sequence[Path] | None) -> None:
        return None

    def blob(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.kept[name] = data
        return name


class Bench:
    """A workspace with everything a tool needs."""

    def __init__(self, root: Path, answer: str | None = None, **options: Any) -> None:
        self.root = root
        self.files = WorkspaceFiles(root, **options)
        self.spawner = PlainSpawner()
        self.plans: list[tuple[PlanItem, ...]] = []
        self.blobs = Blobs()
        self.asked: list[str] = []
        self.answer = answer
        self.read_only = False
        self.max_output_chars = 50_000

    async def _ask(self, question: str, options: Sequence[str]) -> str | None:
        self.asked.append(question)
        return self.answer

    def context(self) -> ToolContext:
        return ToolContext(
            call_id="call-1",
            workspace=self.files.root,
            files=self.files,
            spawner=self.spawner,
            outputs=None,  # type: ignore[arg-type] - file tools keep no outputs
            progress=lambda _text: None,
            ask=self._ask,
            plan=(),
            set_plan=lambda items: self.plans.append(tuple(items)),
            read_only=self.read_only,
            max_output_chars=self.max_output_chars,
            checkpointer=self.blobs,
        )

    async def call(self, name: str, **arguments: Any) -> ToolOutcome:
        spec = REGISTRY.get(name)
        assert spec is not None
        assert spec.handler is not None
        return await spec.handler(validate_arguments(spec, arguments), self.context())
