"""Themes that extensions bring, kept as files where the screen finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aar.runtime.base import log_failure

if TYPE_CHECKING:
    from pathlib import Path

    from aar.extensions.manager import ExtensionManager
    from aar.runtime.base import Base

_THEMES = "extension-themes"


def themes_folder(base: Base) -> Path:
    """Return the folder of the themes of extensions, made anew with each load."""
    return base.paths.cache / _THEMES


def write_themes(base: Base, manager: ExtensionManager) -> None:
    """Write the themes of extensions where the screen finds them, also before extensions are loaded again."""
    import tomlkit

    folder = themes_folder(base)
    themes = manager.themes()
    try:
        if not themes and not folder.exists():
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in folder.glob("*.toml"):
            if file.stem not in themes:
                file.unlink()
        for name, table in themes.items():
            file, text = folder / f"{name}.toml", tomlkit.dumps(table)
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                file.write_text(text, encoding="utf-8")
    except (OSError, TypeError) as error:
        log_failure("themes of extensions could not be kept", error)
