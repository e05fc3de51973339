"""Which extensions there are, found without running any of them.

Tiers, the later wins over the earlier of the same name: those that come with aar (only the ones that
``[extensions] use`` names), installed packages with an entry point in the group ``aar.extensions``, the
user's folder ``<config>/extensions``, the project's ``.aar/extensions`` after trust.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aar.protocol.late import late_pattern

Tier = Literal["built-in", "package", "user", "project"]
GROUP = "aar.extensions"
_NAME = late_pattern(r"[a-z][a-z0-9_-]{0,63}")
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """Where an extension is.

    Attributes:
        name: Of the extension: its file's or folder's, or of the entry point.
        tier: Who brought it.
        path: The file; of a package's the metadata that names it.
        target: ``module`` or ``module:function`` of an entry point; empty for a file.
    """

    name: str
    tier: Tier
    path: Path
    target: str = ""

    @property
    def trusted(self) -> bool:
        """Whether it is the user's own word: what a project brings may tighten and never loosen."""
        return self.tier != "project"

    def describe(self) -> str:
        """Return the first line of its docstring, without running it; empty where it has none."""
        if self.target:
            return self.target
        import ast

        try:
            tree = ast.parse(self.path.read_bytes()[:_MAX_BYTES])
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return ""
        return (ast.get_docstring(tree) or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found.

    Attributes:
        chosen: Those that count, in order of tiers.
        overridden: Those of earlier tiers whose name a later one has.
        disabled: Those that ``[extensions] disabled`` names.
        problems: Sentences about files that are no extensions.
    """

    chosen: tuple[Source, ...] = ()
    overridden: tuple[Source, ...] = ()
    disabled: tuple[Source, ...] = ()
    problems: tuple[str, ...] = ()


def built_in_folder() -> Path:
    """Return the folder of the extensions that come with aar."""
    return Path(__file__).with_name("contrib")


def in_folder(folder: Path, tier: Tier, *, inside: Path | None = None) -> tuple[list[Source], list[str]]:
    """Return the extensions of a folder: ``NAME.py`` and ``NAME/__init__.py``.

    Args:
        folder: It need not exist.
        tier: Whose it is.
        inside: Folder in which files must lie, links followed; ``None``: anywhere.
    """
    found: list[Source] = []
    problems: list[str] = []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return [], []
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        file = entry if entry.suffix == ".py" else entry / "__init__.py"
        if not file.is_file():
            continue
        name = entry.stem if entry.suffix == ".py" else entry.name
        if not _NAME.fullmatch(name):
            problems.append(
                f"{entry}: {name[:60]!r} is no name of an extension; use small letters, digits, '_' and '-'."
            )
        elif inside is not None and not file.resolve().is_relative_to(inside):
            problems.append(f"{entry} leads out of the project and is not used.")
        else:
            found.append(Source(name, tier, file))
    return found, problems


def site_folders() -> list[Path]:
    """Return the folders of installed packages; never the working folder, whatever ``sys.path`` holds."""
    import site

    folders = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getusersitepackages()))
    return list(dict.fromkeys(folders))


def in_packages(folders: Iterable[Path] | None = None) -> list[Source]:
    """Return the extensions of installed packages, as their metadata names them."""
    return [
        source
        for folder in (site_folders() if folders is None else folders)
        for file in _entry_points(folder)
        for source in _of_metadata(file)
    ]


def _entry_points(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except OSError:
        return
    for name in names:
        yield folder / name / "entry_points.txt"


def _of_metadata(file: Path) -> list[Source]:
    try:
        data = file.read_bytes()
    except OSError:
        return []
    if f"[{GROUP}]".encode() not in data:
        return []
    from configparser import ConfigParser
    from configparser import Error as ConfigParserError

    parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    # Names keep their case.
    parser.optionxform = lambda optionstr: optionstr
    try:
        parser.read_string(data.decode("utf-8", "replace"))
    except ConfigParserError:
        return []
    return [
        Source(name, "package", file, target.partition("[")[0].strip())
        for name, target in parser.items(GROUP)
        if _NAME.fullmatch(name)
    ]


def discover(
    user_folder: Path,
    project: Path | None,
    *,
    use: Sequence[str] = (),
    disabled: Sequence[str] = (),
    packages: Iterable[Path] | None = None,
) -> Discovery:
    """Return all extensions.

    Args:
        user_folder: ``<config>/extensions``.
        project: Root of a trusted project; ``None``: its extensions do not count.
        use: Names of those that come with aar which are wanted.
        disabled: Names of those that are not.
        packages: Folders of installed packages; ``None``: those of this Python.
    """
    built_in, _ = in_folder(built_in_folder(), "built-in")
    problems = [
        f"[extensions] use names {name!r}, which does not come with aar; there are "
        f"{', '.join(source.name for source in built_in)}."
        for name in use
        if name not in {source.name for source in built_in}
    ]
    found = [source for source in built_in if source.name in use] + in_packages(packages)
    user, told = in_folder(user_folder, "user")
    found, problems = [*found, *user], [*problems, *told]
    if project is not None:
        theirs, told = in_folder(project / ".aar" / "extensions", "project", inside=project.resolve())
        found, problems = [*found, *theirs], [*problems, *told]
    last = {source.name: source for source in found}
    kept = tuple(source for source in found if last[source.name] is source)
    return Discovery(
        tuple(source for source in kept if source.name not in disabled),
        tuple(source for source in found if last[source.name] is not source),
        tuple(source for source in kept if source.name in disabled),
        tuple(problems),
    )
