"""A first ``AGENTS.md`` from what files of a repository say: no model is asked, nothing is run."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from aar.config.files import UnusableFileError, read_regular

_MAX_BYTES = 200_000
_MAX_CELL = 120
_MOST = 12
_LANGUAGES = {
    "py": "Python", "js": "JavaScript", "mjs": "JavaScript", "jsx": "JavaScript", "ts": "TypeScript",
    "tsx": "TypeScript", "rs": "Rust", "go": "Go", "java": "Java", "kt": "Kotlin", "c": "C", "h": "C",
    "cc": "C++", "cpp": "C++", "hpp": "C++", "cs": "C#", "rb": "Ruby", "php": "PHP", "swift": "Swift",
    "scala": "Scala", "sh": "Shell", "lua": "Lua", "ex": "Elixir", "exs": "Elixir", "hs": "Haskell",
    "dart": "Dart", "sql": "SQL", "html": "HTML", "css": "CSS", "vue": "Vue", "svelte": "Svelte",
}  # fmt: skip
_NODE_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_SCRIPTS = re.compile(r"(build|test|lint|check|format|fmt|typecheck|start|dev|ci)(:.*)?")

Command = tuple[str, str, str]
"""Command line, what it is for, and the file that says so."""


def draft_agents(root: Path, paths: Sequence[str]) -> str:
    """Return an ``AGENTS.md`` for the repository at ``root``.

    Args:
        root: Folder of the repository.
        paths: Its files that are not ignored, relative, with ``/``.
    """
    files = _Files(root, frozenset(path for path in paths if "/" not in path))
    name, about = _identity(files)
    commands = [command for find in _FINDERS for command in find(files)]
    workflows = [path for path in paths if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)]
    parts = [f"# {name}", about, _layout(paths), _commands(commands), _checks(files, workflows), _RULES]
    return "\n\n".join(part for part in parts if part) + "\n"


class _Files:
    """Small files at the top of a repository, read with care: they may be anything."""

    def __init__(self, root: Path, names: frozenset[str]) -> None:
        self.root, self.names = root, names

    def text(self, name: str) -> str:
        if name not in self.names:
            return ""
        try:
            data = read_regular(self.root / name, _MAX_BYTES, inside=self.root.resolve())
        except UnusableFileError:
            return ""
        return (data or b"")[:_MAX_BYTES].decode("utf-8", "replace")

    def toml(self, name: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text(name))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}

    def json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _table(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _line(value: object, limit: int = _MAX_CELL) -> str:
    """Return text of the repository as one short line without control characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def _identity(files: _Files) -> tuple[str, str]:
    for table in (
        _table(files.toml("pyproject.toml"), "project"),
        files.json("package.json"),
        _table(files.toml("Cargo.toml"), "package"),
    ):
        if isinstance(table.get("name"), str):
            return _line(table["name"], 60), _line(table.get("description") or "", 300)
    readme = next((name for name in sorted(files.names) if name.lower().startswith("readme")), "")
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", files.text(readme)))
    plain = (part for part in paragraphs if part and part[0].isalpha())
    return _line(files.root.resolve().name, 60), _line(next(plain, ""), 300)


def _layout(paths: Sequence[str]) -> str:
    folders: dict[str, list[str]] = {}
    for path in paths:
        top, slash, _ = path.partition("/")
        if slash:
            folders.setdefault(top, []).append(path)
    largest = sorted(folders, key=lambda name: (-len(folders[name]), name))[:_MOST]
    rows = [f"- `{_line(name)}/`: {_contents(folders[name])}" for name in sorted(largest)]
    if not rows:
        return ""
    whole = _contents(paths)
    return f"## Layout\n\nIn all {whole}.\n\n" + "\n".join(rows)


def _contents(paths: Sequence[str]) -> str:
    endings = Counter(path.rpartition(".")[2].lower() for path in paths)
    spoken = Counter[str]()
    for ending, count in endings.items():
        if ending in _LANGUAGES:
            spoken[_LANGUAGES[ending]] += count
    words = f"{len(paths):,} file{'' if len(paths) == 1 else 's'}"
    most = [language for language, count in spoken.most_common(3) if count * 4 >= len(paths)]
    return f"{words}, mostly {' and '.join(most)}" if most else words


def _commands(commands: Sequence[Command]) -> str:
    if not commands:
        return ""
    rows = [
        f"- `{_line(line).replace('`', '')}`: {_line(what)} ({source})" for line, what, source in commands
    ]
    return "## Commands\n\n" + "\n".join(dict.fromkeys(rows))


def _python(files: _Files) -> list[Command]:
    project = files.toml("pyproject.toml")
    tools = _table(project, "tool")
    runner = "uv run " if "uv.lock" in files.names else "poetry run " if "poetry.lock" in files.names else ""
    found: list[Command] = []
    if runner == "uv run ":
        found.append(("uv sync", "install", "uv.lock"))
    elif runner:
        found.append(("poetry install", "install", "poetry.lock"))
    elif project.get("build-system") or "setup.py" in files.names:
        extras = _table(project, "project", "optional-dependencies")
        extra = next((f"[{name}]" for name in ("dev", "test", "tests") if name in extras), "")
        source = "pyproject.toml" if project else "setup.py"
        found.append((f'pip install -e ".{extra}"', "install", source))
    if "pytest.ini" in files.names:
        found.append((f"{runner}python -m pytest", "tests", "pytest.ini"))
    known = {
        "pytest": ("python -m pytest", "tests"),
        "ruff": ("ruff check .", "lint"),
        "black": ("black .", "format"),
        "mypy": ("mypy .", "types"),
        "pyright": ("pyright", "types"),
    }
    found += [
        (runner + line, what, "pyproject.toml") for tool, (line, what) in known.items() if tool in tools
    ]
    environments = (("tox", "checks in clean environments", "tox.ini"), ("nox", "sessions", "noxfile.py"))
    return [*found, *(command for command in environments if command[2] in files.names)]


def _node(files: _Files) -> list[Command]:
    package = files.json("package.json")
    if not package:
        return []
    manager = next((tool for lock, tool in _NODE_LOCKS.items() if lock in files.names), "npm")
    scripts = [name for name in _table(package, "scripts") if _SCRIPTS.fullmatch(name)]
    found = [(f"{manager} install", "install", "package.json")]
    bodies = _table(package, "scripts")
    return found + [
        (f"{manager} run {name}", _line(bodies[name], 60), "package.json") for name in scripts[:_MOST]
    ]


def _compiled(files: _Files) -> list[Command]:
    found: list[Command] = []
    for name, lines in (
        ("Cargo.toml", (("cargo build", "build"), ("cargo test", "tests"))),
        ("go.mod", (("go build ./...", "build"), ("go test ./...", "tests"))),
        ("pom.xml", (("mvn verify", "build and tests"),)),
        ("build.gradle", (("./gradlew build", "build and tests"),)),
        ("build.gradle.kts", (("./gradlew build", "build and tests"),)),
        ("mix.exs", (("mix test", "tests"),)),
        ("Gemfile", (("bundle install", "install"),)),
        ("CMakeLists.txt", (("cmake -B build && cmake --build build", "build"),)),
    ):
        if name in files.names:
            found += [(line, what, name) for line, what in lines]
    return found


def _makefile(files: _Files) -> list[Command]:
    found: list[Command] = []
    for name, tool in (("Makefile", "make"), ("justfile", "just"), ("Justfile", "just")):
        targets = re.findall(r"^([A-Za-z][\w-]*)[^:=\n]*:(?!=)", files.text(name), re.MULTILINE)
        found += [(f"{tool} {target}", "target", name) for target in list(dict.fromkeys(targets))[:_MOST]]
    return found


_FINDERS: tuple[Callable[[_Files], list[Command]], ...] = (_python, _node, _compiled, _makefile)


def _checks(files: _Files, workflows: Sequence[str]) -> str:
    rows = [f"- `{_line(path)}` runs on the server." for path in workflows[:_MOST]]
    if ".pre-commit-config.yaml" in files.names:
        rows.append("- `pre-commit run --all-files` runs before each commit (.pre-commit-config.yaml).")
    if ".editorconfig" in files.names:
        rows.append("- `.editorconfig` tells indentation and line ends.")
    return "## Checks\n\n" + "\n".join(rows) if rows else ""


_RULES = """\
## Rules

<!-- Say here what no file says: conventions, what must not be touched, how to tell that work is done. -->"""
