"""The tools by name, with the names that models trained elsewhere use for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from aar.protocol.errors import ConfigurationError
from aar.protocol.tool import ToolSpec

FOREIGN_NAMES: Final[dict[str, str]] = {
    "read": "read_file",
    "view": "read_file",
    "view_file": "read_file",
    "open_file": "read_file",
    "cat": "read_file",
    "write": "write_file",
    "create_file": "write_file",
    "write_to_file": "write_file",
    "edit": "edit_file",
    "str_replace": "edit_file",
    "replace": "edit_file",
    "search_replace": "edit_file",
    "replace_in_file": "edit_file",
    "patch": "apply_patch",
    "ls": "list_directory",
    "list_dir": "list_directory",
    "list_files": "list_directory",
    "glob": "find_files",
    "file_search": "find_files",
    "find": "find_files",
    "search_files": "grep",
    "grep_search": "grep",
    "search_file_content": "grep",
    "run_shell_command": "bash",
    "run_command": "bash",
    "execute_command": "bash",
    "run_terminal_cmd": "bash",
    "todo_write": "todo",
    "ask": "ask_user",
}
"""Names of other assistants' tools whose arguments map cleanly onto ours."""

_PREFIXES: Final = ("functions.", "tools.", "default_api.")


def _plain(name: str) -> str:
    """Fold ``ReadFile``, ``read-file`` and ``read_file`` into one."""
    return name.casefold().replace("_", "").replace("-", "").replace(" ", "")


class ToolRegistry:
    """All tools of a session, in the order in which they were registered."""

    def __init__(self, specs: Iterable[ToolSpec] = ()) -> None:
        self._specs: dict[str, ToolSpec] = {}
        self._folded: dict[str, str] = {_plain(name): ours for name, ours in FOREIGN_NAMES.items()}
        for spec in specs:
            self.register(spec)

    def register(self, spec: ToolSpec) -> None:
        """Add a tool.

        Raises:
            ConfigurationError: There is a tool of this name.
        """
        if spec.name in self._specs:
            raise ConfigurationError(f"There are two tools named {spec.name}; rename or disable one of them.")
        self._specs[spec.name] = spec
        self._folded[_plain(spec.name)] = spec.name

    def replace(self, spec: ToolSpec) -> None:
        """Add a tool, or put it in the place of the one of its name."""
        self._specs[spec.name] = spec
        self._folded.setdefault(_plain(spec.name), spec.name)

    def remove(self, name: str) -> None:
        """Forget a tool; there may be none of this name."""
        if self._specs.pop(name, None) is not None and self._folded.get(_plain(name)) == name:
            del self._folded[_plain(name)]

    def get(self, name: str) -> ToolSpec | None:
        """Return the tool that ``name`` means: its own name, a foreign one, or another spelling."""
        found = self._specs.get(name)
        if found is not None:
            return found
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        return self._specs.get(self._folded.get(_plain(name), ""))

    def nearest(self, name: str) -> list[str]:
        """Return up to three names of tools that look like ``name``, best first."""
        near = get_close_matches(_plain(name), list(self._folded), n=6, cutoff=0.5)
        names = dict.fromkeys(self._folded[match] for match in near)
        return [match for match in names if match in self._specs][:3]

    def specs(self, enabled: Iterable[str] | None = None) -> list[ToolSpec]:
        """Return all tools, or those named in ``enabled``, in order of registration.

        Raises:
            ConfigurationError: ``enabled`` names a tool that does not exist.
        """
        if enabled is None:
            return list(self._specs.values())
        wanted: set[str] = set()
        for name in enabled:
            spec = self.get(name)
            if spec is None:
                near = self.nearest(name)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(self._specs)}."
                raise ConfigurationError(f"[tools] enabled names the unknown tool {name}; {hint}")
            wanted.add(spec.name)
        return [spec for spec in self._specs.values() if spec.name in wanted]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)
