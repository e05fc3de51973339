"""Agents as data: who they are, what they may use, how long they may work.

An agent is a Markdown file: its front matter says the settings, its text is the instructions. The names of
fields and tools that Claude Code's agent files use are understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

from aar.config.front_matter import Document, words
from aar.config.schema import PermissionMode
from aar.config.tighten import MODES
from aar.protocol.late import late_pattern
from aar.tools.registry import ToolRegistry

NAME = late_pattern(r"[a-z0-9][a-z0-9_-]{0,63}")
_READ = ("read_file", "list_directory", "find_files", "grep", "bash", "read_output", "skill")
_FOREIGN_MODES: dict[str, PermissionMode] = {"acceptEdits": "edit", "plan": "plan", "default": "ask"}
_WORKERS_MODEL = frozenset({"inherit", "sonnet", "opus", "haiku", "default"})
"""Names that other assistants' files use for their own models: aar's model works instead."""


@dataclass(frozen=True, slots=True)
class Profile:
    """An agent.

    Attributes:
        name: What it is called by.
        description: When it is of use; the model reads this.
        prompt: Its instructions.
        source: The file, or ``built-in``.
        tools: Names or patterns of its tools; ``None``: all that its caller has.
        without: Names or patterns of tools that it does not get.
        model: ``provider/model``; ``None``: its caller's.
        reasoning: How much it thinks first; ``None``: as its caller.
        temperature: Sampling temperature; ``None``: as its caller.
        mode: Loosest permission mode; ``None``: its caller's.
        max_steps: Model requests of one run.
        max_cost: US dollars of one run; 0: no limit of its own.
        stop: Sequences at which its model stops.
        memory: Whether it may read and write notes.
        advisors: Agents whose advice it wants.
        handoff: The only agents that it may give work to; none: all that there are.
        critic: Whether its answer is judged before it is final; ``None``: as the settings say.
        worktree: Whether it works in a git work tree when another agent starts it.
        unused: Fields of its file that aar does not act on.
    """

    name: str
    description: str
    prompt: str
    source: str = "built-in"
    tools: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    model: str | None = None
    reasoning: str | int | None = None
    temperature: float | None = None
    mode: PermissionMode | None = None
    max_steps: int | None = None
    max_cost: float = 0.0
    stop: tuple[str, ...] = ()
    memory: bool = True
    advisors: tuple[str, ...] = ()
    handoff: tuple[str, ...] = ()
    critic: bool | None = None
    worktree: bool = False
    unused: tuple[str, ...] = field(default=())

    def allowed(self, registry: ToolRegistry, offered: Iterable[str]) -> frozenset[str]:
        """Return which of the ``offered`` tools it gets; foreign names of tools are understood."""
        names = list(offered)
        wanted = set(names) if self.tools is None else _matching(self.tools, registry, names)
        return frozenset(wanted - _matching(self.without, registry, names))


def _matching(patterns: Iterable[str], registry: ToolRegistry, names: list[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        bare = pattern.partition("(")[0]
        spec = registry.get(bare)
        found |= {spec.name} & set(names) if spec is not None else set()
        found |= {name for name in names if fnmatchcase(name, bare)}
        if bare in ("MultiEdit", "NotebookEdit"):
            found |= {"edit_file"} & set(names)
        if bare == "Agent":
            found |= {"task"} & set(names)
    return found


def profile_of(document: Document) -> Profile | str:
    """Return the agent that a file describes, or a sentence that says what is wrong with it."""
    meta = {key.replace("-", "_"): value for key, value in document.meta.items()}
    name = str(meta.pop("name", None) or document.path.stem).strip().lower().replace(" ", "-")
    if not NAME.fullmatch(name):
        return f"{document.path}: {name[:40]!r} is no name of an agent; use letters, digits and '-'."
    if not document.body.strip():
        return f"{document.path}: the agent has no instructions; write them below the front matter."
    try:
        return _build(name, meta, document)
    except ValueError as error:
        return f"{document.path}: {error}."


def _build(name: str, meta: dict[str, Any], document: Document) -> Profile:
    def take(*keys: str) -> Any:
        found = [meta.pop(key, None) for key in keys]
        return next((value for value in found if value is not None), None)

    tools = take("tools")
    if isinstance(tools, dict):
        chosen = cast("dict[str, Any]", tools)
        without = tuple(key for key, on in chosen.items() if not on)
        tools = None
    else:
        without = ()
    memory = _flag("memory", take("memory")) is not False
    return Profile(
        name=name,
        description=" ".join(str(take("description") or "").split()),
        prompt=document.body.strip(),
        source=str(document.path),
        tools=None if tools is None or tools == "*" else words(tools),
        without=(
            *without,
            *words(take("disallowed_tools", "disallowedTools")),
            *(() if memory else ("memory_*",)),
        ),
        model=_model(take("model")),
        reasoning=_reasoning(take("reasoning", "effort")),
        temperature=_number("temperature", take("temperature"), 0, 2),
        mode=_mode(take("mode", "permissionMode", "permission_mode")),
        max_steps=_steps(take("max_steps", "maxTurns", "steps")),
        max_cost=_number("max_cost", take("max_cost"), 0, 1e9) or 0.0,
        stop=words(take("stop")),
        memory=memory,
        advisors=_agents("advisors", take("advisors")),
        handoff=_agents("handoff", take("handoff")),
        critic=_flag("critic", take("critic")),
        worktree=_worktree(take("worktree"), take("isolation")),
        unused=tuple(sorted(meta)),
    )


def _model(value: object) -> str | None:
    text = str(value).strip() if value is not None else ""
    if not text or text.lower() in _WORKERS_MODEL or text.startswith("claude-"):
        return None
    if "/" not in text:
        raise ValueError(f"model {text!r} is not written as PROVIDER/MODEL")
    return text


def _reasoning(value: object) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _number(name: str, value: object, least: float, most: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}")
    return float(value)


def _steps(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("max_steps must be a whole number of at least 1")
    return value


def _flag(name: str, value: object) -> bool | None:
    """Return yes or no; Claude Code's ``memory: user`` and the like are a yes."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("user", "project", "local", "on", "yes"):
        return True
    if isinstance(value, str) and value.lower() in ("off", "none", "no"):
        return False
    raise ValueError(f"{name} must be true or false")


def _worktree(flag: object, isolation: object) -> bool:
    """Return whether it works in a work tree; Claude Code's files say ``isolation: worktree``."""
    if isolation is not None and isolation not in ("worktree", "none"):
        raise ValueError("isolation must be worktree or none")
    return isolation == "worktree" if flag is None else _flag("worktree", flag) is True


def _agents(name: str, value: object) -> tuple[str, ...]:
    found = words(value)
    if wrong := [item for item in found if not NAME.fullmatch(item)]:
        raise ValueError(f"{name}: {wrong[0][:40]!r} is no name of an agent")
    return found


def _mode(value: object) -> PermissionMode | None:
    """Return a mode; a name that is not known never loosens anything."""
    text = str(value) if value is not None else ""
    known: dict[str, PermissionMode] = {mode: mode for mode in MODES}
    return known.get(text) or _FOREIGN_MODES.get(text)


def merged(*layers: Iterable[Profile]) -> dict[str, Profile]:
    """Return all agents by name; those of later layers take the place of earlier ones."""
    return {profile.name: profile for layer in layers for profile in layer}


def describe(profiles: Mapping[str, Profile]) -> str:
    """Return one line for each agent, for the model."""
    return "\n".join(f"- {item.name}: {item.description[:400]}" for item in profiles.values())


BUILT_IN: tuple[Profile, ...] = (
    Profile(
        "explore",
        "Searches and reads the project and reports where things are and how they work. Changes nothing. "
        "Good for broad questions whose reading would fill your own context.",
        "You explore a code base to answer one question. Search broadly first, then read what matters. "
        "Change nothing. Report file paths with line numbers, quote only the lines that prove a point, and "
        "say what you looked for and did not find.",
        tools=_READ,
        mode="plan",
        max_steps=60,
    ),
    Profile(
        "plan",
        "Works out how to do a larger change: files, order of steps, risks, checks. Changes nothing.",
        "You plan a change to a code base. Read what it touches, find how the project does such things, then "
        "write numbered steps. Each names its files and how to tell that it is done. End with risks and open "
        "questions. Change nothing.",
        tools=_READ,
        mode="plan",
        max_steps=60,
    ),
    Profile(
        "coder",
        "Does one well-described change of code with its tests, and reports what it changed and checked.",
        "You make one change to a code base. Keep to what you were asked, follow the style around you, run "
        "the tests that concern it, and report the files you changed, what you checked and what is left.",
        without=("ask_user",),
        max_steps=150,
    ),
    Profile(
        "reviewer",
        "Reviews a change or a part of the code for mistakes. Changes nothing.",
        "You review code. Read the change (git diff, git log) and what it touches. Report only what you can "
        "show to be wrong or risky: file and line, what happens, when, and the fix in a sentence. Order by "
        "severity. Say so when you found nothing. Change nothing.",
        tools=_READ,
        mode="plan",
        max_steps=80,
    ),
    Profile(
        "tester",
        "Writes and runs tests for a behaviour, and reports what fails and why.",
        "You test. Find how the project tests, write tests that would fail if the behaviour broke, run them, "
        "and report what passes, what fails and the cause as far as you can show it. Change code under test "
        "only when you were asked to.",
        without=("ask_user",),
        max_steps=120,
    ),
    Profile(
        "security",
        "Looks for weaknesses that an attacker could use. Changes nothing.",
        "You look for security problems: untrusted input that reaches commands, paths, queries, templates or "
        "deserialisers; secrets in code; missing checks of rights; unsafe defaults. For each: file and line, "
        "how it is reached, what an attacker gains, the fix. Leave out what you cannot show. Change nothing.",
        tools=_READ,
        mode="plan",
        max_steps=80,
    ),
    Profile(
        "docs",
        "Writes and corrects documentation so that it matches the code. Runs no commands.",
        "You write documentation. Read the code before you describe it, keep its tone, prefer short "
        "sentences and examples that work, and change nothing but documentation and docstrings.",
        without=("bash", "ask_user"),
        max_steps=80,
    ),
)
"""The agents that come with aar."""
