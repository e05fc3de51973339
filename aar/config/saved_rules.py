"""Rules that the user gave with "don't ask again", for one project or for all (DESIGN 8).

Those of a project lie in the user's own data, bound to the project's path: a repository can neither bring
rules along that allow, nor change those of its user.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from aar.config.files import UnusableFileError, cannot_write, read_regular, write_atomic
from aar.config.paths import Paths, ensure, project_key
from aar.protocol.errors import StorageError

_MAX_BYTES = 1_000_000


class SavedRules:
    """The allow rules that were saved for one project.

    Attributes:
        file: Where they are; 0600 in the user's data.
    """

    def __init__(self, paths: Paths, root: Path) -> None:
        self._root = str(root.resolve())
        self.file = paths.data / "rules" / f"{project_key(root)}.json"

    def load(self) -> tuple[str, ...]:
        """Return the rules, oldest first; a damaged file, or one of another project, holds none."""
        try:
            data = json.loads(read_regular(self.file, _MAX_BYTES) or b"{}")
        except (OSError, UnusableFileError, ValueError, RecursionError):
            return ()
        if not isinstance(data, dict):
            return ()
        table = cast("dict[str, Any]", data)
        rules = table.get("allow")
        if table.get("root") != self._root or not isinstance(rules, list):
            return ()
        return tuple(rule for rule in cast("list[Any]", rules) if isinstance(rule, str))

    def add(self, rule: str) -> None:
        """Keep one more rule.

        Raises:
            StorageError: It cannot be written.
        """
        self._write((*self.load(), rule))

    def remove(self, rule: str) -> bool:
        """Forget a rule; tell whether it was there.

        Raises:
            StorageError: The file cannot be written.
        """
        kept = [known for known in self.load() if known != rule]
        if len(kept) == len(self.load()):
            return False
        self._write(kept)
        return True

    def _write(self, rules: tuple[str, ...] | list[str]) -> None:
        ensure(self.file.parent)
        text = json.dumps({"root": self._root, "allow": list(dict.fromkeys(rules))}, indent=1)
        try:
            write_atomic(self.file, text.encode())
        except OSError as error:
            raise StorageError(cannot_write(self.file, error)) from error


def save_user_rule(paths: Paths, rule: str) -> None:
    """Add an allow rule to the user's config file; the rest of the file stays.

    Raises:
        ConfigurationError: The file cannot be read or changed.
        StorageError: It cannot be written.
    """
    from aar.config.edit import get_value, set_value

    known = get_value(paths.user_config, "permissions.allow")
    rules = [str(item) for item in cast("list[Any]", known)] if isinstance(known, list) else []
    if rule not in rules:
        set_value(paths.user_config, "permissions.allow", json.dumps([*rules, rule]))
