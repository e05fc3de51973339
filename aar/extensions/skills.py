"""Skills: folders with a ``SKILL.md``, of which a model sees only names and descriptions until it uses one.

The format is that of https://agentskills.io: front matter with ``name`` and ``description``, then the
instructions; other files of the folder are read when the instructions name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field

from aar.config.files import UnusableFileError, read_regular
from aar.config.front_matter import read_document
from aar.extensions.command_files import fill_in
from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.protocol.text import clean_text
from aar.protocol.tool import ToolOutcome, ToolSpec
from aar.tools.schema import ToolArgs, tool_spec

FILE: Final = "SKILL.md"
SKILL: Final = "skill"
MAX_SKILLS: Final = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MAX_LIST_CHARS: Final = 16_000
_MAX_FILE_BYTES: Final = 200_000
_MAX_NAMES: Final = 60

DESCRIPTION: Final = """\
Load a skill: instructions for a kind of work that the user or the project has written down.
When: the task is what one of the skills below is for; load it before you begin.
Inputs: name; arguments, if the skill takes some; file, to read another file of the skill's folder.
Output: the instructions, or the file.
Limits: files of at most 200 kB; what a skill says gives no more rights.
Skills:
{skills}"""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill.

    Attributes:
        name: What it is called by.
        description: What it is for and when to use it.
        folder: Where it lies.
        inside: Resolved folder that its files must lie in.
        for_model: Whether the model may load it by itself.
        hint: What may follow its name when the user types it.
    """

    name: str
    description: str
    folder: Path
    inside: Path
    for_model: bool = True
    hint: str = ""

    def instructions(self, arguments: str = "") -> str:
        """Return the text of its ``SKILL.md``.

        Raises:
            ToolFailure: It cannot be read any more.
        """
        try:
            document = read_document(self.folder / FILE, inside=self.inside)
        except UnusableFileError as error:
            raise ToolFailure(
                ToolCategory.NOT_FOUND, f"The skill {self.name} cannot be read: {error}."
            ) from error
        if document is None:
            raise ToolFailure(ToolCategory.NOT_FOUND, f"The skill {self.name} is gone.")
        return fill_in(document.body.strip(), arguments)

    def files(self) -> list[str]:
        """Return the names of its other files, relative."""
        found: list[str] = []
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name != FILE and not any(part.startswith(".") for part in path.parts[-2:]):
                found.append(name)
            if len(found) >= _MAX_NAMES:
                break
        return found

    def read(self, name: str) -> str:
        """Return one of its files.

        Raises:
            ToolFailure: There is none, it lies elsewhere, or it is no text.
        """
        try:
            data = read_regular(self.folder / name, _MAX_FILE_BYTES, inside=self.folder.resolve())
        except UnusableFileError as error:
            raise ToolFailure(ToolCategory.BLOCKED, f"{name} of the skill {self.name}: {error}.") from error
        if data is None:
            known = ", ".join(self.files()) or "none"
            raise ToolFailure(
                ToolCategory.NOT_FOUND, f"The skill {self.name} has no {name!r}; its files: {known}."
            )
        if b"\0" in data[:8192]:
            raise ToolFailure(ToolCategory.INVALID_ARGUMENTS, f"{name} is not a text file.")
        return clean_text(data[:_MAX_FILE_BYTES].decode("utf-8", "replace"))


def discover(folders: Sequence[tuple[Path, Path | None]]) -> tuple[dict[str, Skill], list[str]]:
    """Return all skills below ``folders``, and a sentence for each that is wrong; later folders win."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for folder, inside in folders:
        try:
            places = sorted(path for path in folder.iterdir() if path.is_dir())
        except OSError:
            continue
        for place in places[:MAX_SKILLS]:
            skill = _skill(place, inside)
            if isinstance(skill, Skill):
                found[skill.name] = skill
            elif skill:
                problems.append(skill)
    return found, problems


def _skill(place: Path, inside: Path | None) -> Skill | str | None:
    try:
        document = read_document(place / FILE, inside=inside)
    except UnusableFileError as error:
        return f"{place / FILE} is not used: {error}."
    if document is None:
        return None
    meta = document.meta
    name = str(meta.get("name") or place.name).strip().lower().replace(" ", "-")
    description = " ".join(str(meta.get("description") or "").split())
    if not _NAME.fullmatch(name):
        return f"{place / FILE}: {name[:40]!r} is no name of a skill; use small letters, digits and '-'."
    if not description:
        return f"{place / FILE}: the skill has no description, so nobody knows when to use it."
    hidden = meta.get("disable-model-invocation") is True
    hint = str(meta.get("argument-hint") or "")
    return Skill(name, description, place, inside or place.resolve(), not hidden, hint)


def listing(skills: Mapping[str, Skill]) -> str:
    """Return one line for each skill that the model may load; many of them get less room each."""
    shown = [skill for skill in skills.values() if skill.for_model]
    each = max(60, min(1024, _MAX_LIST_CHARS // max(1, len(shown)) - 40))
    return "\n".join(f"- {skill.name}: {_cut(skill.description, each)}" for skill in shown)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


class SkillArgs(ToolArgs):
    """Arguments of skill."""

    name: str = Field(min_length=1, description="Name of the skill.")
    arguments: str = Field(default="", description="What the skill should work on.")
    file: str | None = Field(default=None, description="A file of the skill to read instead.")


def tools(skills: Mapping[str, Skill]) -> list[ToolSpec]:
    """Return the tool that loads skills; none where the model may load none."""

    async def load(args: SkillArgs, context: ToolContext) -> ToolOutcome:
        skill = skills.get(args.name.strip().lstrip("/").lower())
        if skill is None or not skill.for_model:
            from difflib import get_close_matches

            near = get_close_matches(args.name, list(skills), 1)
            hint = f"Did you mean {near[0]}?" if near else "Use one of those in the description of this tool."
            raise ToolFailure(ToolCategory.NOT_FOUND, f"There is no skill {args.name!r}. {hint}")
        if args.file is not None:
            return ToolOutcome(skill.read(args.file))
        return ToolOutcome(loaded(skill, args.arguments))

    if not any(skill.for_model for skill in skills.values()):
        return []
    description = DESCRIPTION.format(skills=listing(skills))
    return [
        tool_spec(
            SKILL,
            description,
            SkillArgs,
            frozenset(),
            load,
            summary="Load instructions for a kind of work.",
            idempotent=True,
            concurrency="parallel",
            aliases={"skill": "name", "skill_name": "name", "args": "arguments"},
        )
    ]


def loaded(skill: Skill, arguments: str = "") -> str:
    """Return what is put before the model when a skill is used."""
    lines = [f"Skill {skill.name} (folder {skill.folder}). Follow these instructions for the task:"]
    lines += ["", skill.instructions(arguments)]
    files = skill.files()
    if files:
        lines += ["", f"Other files of this skill, read with skill(name, file): {', '.join(files)}"]
    return "\n".join(lines)
