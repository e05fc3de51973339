"""Which extensions there are in a folder, and the one place where a process keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aar.runtime.base import log_failure

if TYPE_CHECKING:
    from aar.extensions.manager import ExtensionManager
    from aar.runtime.base import Base

KEPT = "extensions"
"""Name in `Base.kept` under which the extensions of a process are."""


def manager_of(base: Base) -> ExtensionManager:
    """Return the extensions of a process and folder; nothing is read before they are begun or waited for."""
    kept: ExtensionManager | None = base.kept.get(KEPT)
    if kept is None:
        kept = base.kept[KEPT] = make_manager(base)
    return kept


def make_manager(base: Base) -> ExtensionManager:
    """Return extensions that nobody has begun to load."""
    from aar.extensions.manager import ExtensionManager, Settings
    from aar.providers.presets import ALIASES, PRESETS

    wanted = base.config.extensions
    return ExtensionManager(
        Settings(
            user_folder=base.paths.config / "extensions",
            project=lambda: _trusted_project(base),
            workspace=base.workspace,
            data=base.paths.data / "extensions",
            use=wanted.use,
            disabled=wanted.disabled,
            settings=wanted.settings,
            load_s=wanted.load_seconds,
            taken_providers=frozenset((*PRESETS, *ALIASES, *base.config.providers)),
            log=log_failure,
            enabled=wanted.enabled,
        )
    )


def _trusted_project(base: Base) -> Path | None:
    """Return the project where it is trusted as it is now: it may have changed since aar was started."""
    if not base.trusted or not (base.workspace / ".aar" / "extensions").is_dir():
        return None
    from aar.config.trust import TrustStore

    return base.workspace if TrustStore(base.paths).is_trusted(base.workspace) else None
