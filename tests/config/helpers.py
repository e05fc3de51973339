"""A project and a home on disk, and one call that loads their config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aar.config.load import LoadedConfig, load_config
from aar.config.paths import Paths, paths


@dataclass(frozen=True)
class Place:
    root: Path
    home: Path

    @property
    def paths(self) -> Paths:
        return paths({"AAR_HOME": str(self.home)})

    @property
    def managed(self) -> Path:
        return self.home / "managed.toml"

    def write(self, file: Path, text: str) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def user(self, text: str) -> Path:
        return self.write(self.paths.user_config, text)

    def project(self, text: str) -> Path:
        return self.write(self.root / ".aar/config.toml", text)

    def load(self, **given: Any) -> LoadedConfig:
        given = {"trusted": True, "environ": {}, **given}
        return load_config(self.root, paths=self.paths, managed_file=self.managed, **given)
