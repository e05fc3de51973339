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

    def hold(self, folder: Path) -> bool:
        """Tell whether a folder is inside, wherever links on its way lead."""
        try:
            return any(folder.resolve().is_relative_to(own) for own in self._folders)
        except (OSError, RuntimeError):
            return False

    def hold_session(self, cwd: Path) -> bool:
        """Tell whether a stored session is one of these folders; it names the project that a folder is in."""
        return self.hold(cwd) or cwd in self._projects

    def demand(self, folder: Path, key: str) -> None:
        """Raise `RpcError` for a folder that is not inside; whether it exists stays untold.

        Args:
            folder: What the client named.
            key: The parameter in which it did.
        """
        if not self.hold(folder):
            served = " and ".join(map(str, self._folders))
            raise invalid_params(
                f"{key} {folder} is not served: sessions work in {served}; --allow-dir of aar acp opens more"
            )
