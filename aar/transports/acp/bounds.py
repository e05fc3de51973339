"""What a client from elsewhere may open: the folders that whoever started the server gave it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aar.config.paths import project_root
from aar.transports.acp.messages import invalid_params


class Bounds:
    """Folders in which clients may work, with all that is below them.

    Args:
        folders: They are resolved here, so that a link that changes later opens nothing.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self._projects = frozenset(project_root(folder) for folder in self._folders)

    def hold(self, folder: Path) -> Path | None:
        """Return a folder that is inside, wherever links on its way lead, without those; else ``None``."""
        try:
            found = folder.resolve()
        except (OSError, RuntimeError):
            return None
        return found if any(found.is_relative_to(own) for own in self._folders) else None

    def hold_session(self, cwd: Path) -> bool:
        """Tell whether a stored session is one of these folders; it names the project that a folder is in."""
        return self.hold(cwd) is not None or cwd in self._projects

    def demand(self, folder: Path, key: str) -> Path:
        """Return what `hold` does: a link that changes afterwards leads nowhere else.

        Args:
            folder: What the client named.
            key: The parameter in which it did.

        Raises:
            RpcError: It is not inside; whether it exists stays untold.
        """
        found = self.hold(folder)
        if found is None:
            served = " and ".join(map(str, self._folders))
            raise invalid_params(
                f"{key} {folder} is not served: sessions work in {served}; --allow-dir of aar acp opens more"
            )
        return found
