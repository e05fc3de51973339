"""Help for a small model that works by whole-file answers (dialect ``files``).

Such a model cannot explore, forgets rules that stand far above, copies what it was shown, and loses parts
of files. So it is shown what matters, is told the form of the answer next to the task, is kept from
touching tests by the way, and hears at once what is surely wrong with what it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from aar.core.coaching.project_files import ProjectFiles
from aar.core.coaching.python_check import check_python, lost_definitions
from aar.core.coaching.python_merge import restore_lost
from aar.protocol.events import ContextEvent, Event, ToolResult
from aar.protocol.messages import Message, TextBlock, ToolUseBlock
from aar.providers.text_tools import ParsedText, Parser

_MAX_REVIEWS = 3
_LOOKING = frozenset({"bash", "read_file"})
_WRITING = frozenset({"write_file", "edit_file"})
_MAX_REPEATED = 600
_MIN_OUTPUT = 900
_TEST_NAME = re.compile(r"(^|/)(tests?/|test_[^/]*$|[^/]*_test\.|[^/]*\.(test|spec)\.|conftest\.py$)")
_ABOUT_TESTS = re.compile(
    r"\b(?:write|add|extend|update|create|change|improve|more|new|cover\w*)\b[^.\n]*\btests?\b"
    r"|\brenam\w+|\beverywhere\b|\bmov(?:e|ing)\b",
    re.IGNORECASE,
)
_ABOUT_REMOVAL = re.compile(
    r"\b(?:remove|delete|drop|get rid|clean|unused|dead|merge|split|move|replace)\b", re.IGNORECASE
)
_ABOUT_RENAMING = re.compile(r"\brenam\w+|\binstead of\b|\bchange the name\b", re.IGNORECASE)
_RENAME = re.compile(
    r"\brenam\w+\s+(?:the\s+)?(?:\w+\s+)?[`'\"]?(\w+)(?:\(\))?[`'\"]?\s+(?:to|into|as)\s+[`'\"]?(\w+)",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(
    r"(?<![\w./-])([\w-]+(?:/[\w.-]+)*\.(?:py|js|ts|md|txt|json|toml|yaml|yml|sh|html|css|c|go|rs))\b"
)
IS_QUESTION = re.compile(
    r"^\s*(?:what|which|why|how|where|who|when|explain|describe|summari[sz]e)\b(?:[^.!?]|\.\w)*[?.]?\s*$",
    re.IGNORECASE,
)
ABOUT_RUNNING = re.compile(r"\b(?:run|execute|install)\b", re.IGNORECASE)

ANSWER_FORM = "Answer with the changed files, complete."
READ_FORM = "To see another file first, answer only with READ: and its path."
RUN_FORM = "To run a command, answer only with RUN: and the command."


@dataclass
class FilesCoach:
    """Watches one run of a small model.

    Attributes:
        project: The project as the model is shown it.
        budget: Tokens of file content.
        words: What the user asked for in this run.
        notes: Sentences for the user, to be taken with `take_notes`.
        reviews: How often the model was told what is wrong.
        setbacks: Answers of this run that were not good enough.
        failure: What the model reads about the check that fails now, or empty.
        objection: What is wrong with what it wrote last, or empty.
        acted: Whether it ran commands or read files in this run.
    """

    project: ProjectFiles
    budget: int
    words: str = ""
    notes: list[str] = field(default_factory=list[str])
    reviews: int = 0
    setbacks: int = 0
    failure: str = ""
    objection: str = ""
    acted: bool = False
    _before: dict[str, str] = field(default_factory=dict[str, str])
    _known_problems: frozenset[str] = frozenset()

    def opening(self, words: str, failure: str) -> Event:
        """Return the event that shows the project; it comes before the user's words.

        Args:
            words: The user's prompt.
            failure: Output of the failing check, or empty.
        """
        self.words = words
        self.failure = failure
        text = self.project.describe(words, failure, self.budget)
        self._note_known_problems()
        return as_context("notes", "project", text)

    def _note_known_problems(self) -> None:
        self._known_problems = frozenset(self._problems(self.project.paths))

    def reminder(self) -> Event:
        """Return the event that tells the form of the answer; it comes after the user's words."""
        if IS_QUESTION.search(self.words):
            return as_context("notes", "form of the answer", "Answer in words.")
        forms = [self.form()]
        if not self.project.all_shown:
            forms.append(READ_FORM)
        if ABOUT_RUNNING.search(self.words):
            forms.append(RUN_FORM)
        return as_context("notes", "form of the answer", " ".join(forms))

    def form(self, paths: Sequence[str] = ()) -> str:
        """Return how to answer: with ``paths`` if given, else with new files that the task names."""
        if paths:
            listed = " and ".join(paths)
            return f"Write {listed} again, complete."
        new = [name for name in dict.fromkeys(_FILE_NAME.findall(self.words)) if not self._exists(name)]
        if not new:
            return ANSWER_FORM
        listed = " and ".join(new)
        return f"{listed} does not exist yet: write it."

    @property
    def max_output_tokens(self) -> int:
        """Tokens of an answer: room for all files that were shown, and some more; a runaway ends there."""
        return max(_MIN_OUTPUT, 2 * self.project.shown_tokens)

    def _exists(self, name: str) -> bool:
        return any(path == name or path.endswith(f"/{name}") for path in self.project.known_paths())

    def fresh(self) -> Message | None:
        """Return the whole task anew, as the files are now; ``None`` while the conversation serves.

        A small model that sees its own wrong answer gives it again. After a setback it is better asked
        afresh, with the files as they stand and what is wrong with them, and nothing of what it said.
        """
        if not self.setbacks or self.acted:
            return None
        parts = [self.project.describe(self.words, self.failure, self.budget, again=True)]
        if self.failure:
            parts.append(f"The check fails:\n```\n{self.failure}\n```")
        parts += [f"Task: {self.words}", self.objection or self.form()]
        return Message(role="user", content=(TextBlock(text="\n\n".join(part for part in parts if part)),))

    def extra(self) -> Mapping[str, Any]:
        """Return more fields for the next request; here none."""
        return {}

    def remind(self, messages: list[Message]) -> list[Message]:
        """Return ``messages`` as they are to be sent; here nothing is added."""
        return messages

    def set_back(self, failure: str | None = None, objection: str = "") -> None:
        """Take note that the last answer was not good enough, and why."""
        self.setbacks += 1
        self.objection = objection
        if failure is not None:
            self.failure = failure

    def take_notes(self) -> list[str]:
        """Remove and return the sentences for the user."""
        taken, self.notes = self.notes, []
        return taken

    # --- the answer ----------------------------------------------------------------------------------

    def guard(self, parser: Parser) -> Parser:
        """Return ``parser`` with answers looked over before anything of them is run."""
        return _GuardedParser(parser, self)

    def look_over(self, parsed: ParsedText) -> ParsedText:
        """Leave out calls that the task did not ask for; ask again when nothing is left."""
        if parsed.problem is not None:
            return replace(parsed, problem=self._asked_again(parsed.problem))
        if not parsed.calls:
            return parsed
        kept = self._without_tests([call for call in parsed.calls if not self._is_needless(call)])
        kept = [self._completed(call) for call in self._without_extras(kept)]
        if not kept:
            shown = "Everything you asked to see is shown above."
            return replace(parsed, calls=(), problem=self._asked_again(shown))
        self._remember(kept)
        self.acted = self.acted or any(call.name in _LOOKING for call in kept)
        return replace(parsed, calls=tuple(kept))

    def _asked_again(self, problem: str) -> str:
        """Return what to tell the model: what was wrong, and the task once more."""
        words = self.words if len(self.words) <= _MAX_REPEATED else self.words[:_MAX_REPEATED] + " …"
        return f"{problem} The task is not done yet: {words}\n{self.form()}"

    def _is_needless(self, call: ToolUseBlock) -> bool:
        return call.name == "read_file" and self.project.is_shown(str(call.arguments.get("path", "")))

    def _without_extras(self, calls: list[ToolUseBlock]) -> list[ToolUseBlock]:
        """Leave out commands beside written files when the task is not to run something.

        Small models add them out of habit, and then run them over and over; ``--verify`` checks the work.
        """
        wrote = any(call.name not in _LOOKING for call in calls)
        if not wrote or ABOUT_RUNNING.search(self.words):
            return calls
        return [call for call in calls if call.name not in _LOOKING]

    def _completed(self, call: ToolUseBlock) -> ToolUseBlock:
        """Put back what a whole-file answer left out of a Python file although nobody asked for that."""
        path = str(call.arguments.get("path", ""))
        old = self.project.content(path) if call.name == "write_file" and path.endswith(".py") else None
        if old is None or _ABOUT_REMOVAL.search(self.words):
            return call
        merged = restore_lost(old, str(call.arguments.get("content", "")), self._is_spoken_of)
        if not merged.restored:
            return call
        self.notes.append(f"{path}: kept {', '.join(merged.restored)}, which the answer had left out.")
        text = merged.text
        for was, now in _RENAME.findall(self.words):
            # What was put back is from before the renaming that the task asks for.
            text = re.sub(rf"(?<!\w){re.escape(was)}(?!\w)", now, text)
        return call.model_copy(update={"arguments": {**call.arguments, "content": text}})

    def _is_spoken_of(self, name: str) -> bool:
        """Tell whether the task is to rename ``name``, so that it may be gone."""
        return _ABOUT_RENAMING.search(self.words) is not None and self._says(name)

    def _says(self, name: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.words) is not None

    def _without_tests(self, calls: list[ToolUseBlock]) -> list[ToolUseBlock]:
        """Leave existing tests alone when the task is about other files."""
        tests = [call for call in calls if self._changes_unasked_test(call)]
        others = [call for call in calls if call.name in _WRITING and call not in tests]
        if not tests or not others:
            return calls
        for call in tests:
            self.notes.append(f"{call.arguments['path']} was left as it is: the task is not about tests.")
        return [call for call in calls if call not in tests]

    def _changes_unasked_test(self, call: ToolUseBlock) -> bool:
        path = str(call.arguments.get("path", ""))
        return call.name in _WRITING and self._is_unasked_test(path)

    def _is_unasked_test(self, path: str) -> bool:
        if _ABOUT_TESTS.search(self.words):
            return False
        named = path in self.words or PurePosixPath(path).name in self.words
        existing = path in self.project.known_paths()
        return existing and not named and _TEST_NAME.search(path) is not None

    def _remember(self, calls: Sequence[ToolUseBlock]) -> None:
        self._before = {}
        for call in calls:
            path = str(call.arguments.get("path", ""))
            text = self.project.content(path) if call.name != "read_file" and path else None
            if text is not None:
                self._before[path] = text

    # --- what came of it -----------------------------------------------------------------------------

    def review(self, results: Sequence[ToolResult]) -> Event | None:
        """Return what the model should hear about the files that it wrote; ``None``: nothing is wrong."""
        changed = [change.path for result in results for change in result.file_changes]
        self.project.refresh([*self.project.known_paths(), *changed])
        if self.reviews >= _MAX_REVIEWS:
            return None
        problems = [text for text in self._problems(self.project.paths) if text not in self._known_problems]
        problems += self._lost()
        if not problems:
            return None
        self.reviews += 1
        listed = "\n".join(f"- {problem}" for problem in problems[:8])
        paths = [path for path in self.project.paths if any(text.startswith(path) for text in problems)]
        return as_context("diagnostics", "Problems in what you wrote", f"{listed}\n{self.form(paths)}")

    def _problems(self, paths: Sequence[str]) -> list[str]:
        return check_python(paths[:300], self.project.content, self.project.known_paths())

    def _lost(self) -> list[str]:
        """Return sentences about definitions that got lost without having been asked for."""
        if _ABOUT_REMOVAL.search(self.words):
            return []
        sentences: list[str] = []
        for path, names in lost_definitions(self._before, self.project.content).items():
            unasked = [name for name in names if not self._is_spoken_of(name.split(".")[-1])]
            if unasked:
                listed = ", ".join(f"`{name}`" for name in unasked)
                sentences.append(
                    f"{path} has lost {listed}: write the file again with everything that stays."
                )
        return sentences


class _GuardedParser:
    """A parser whose answers are looked over by the coach."""

    def __init__(self, parser: Parser, coach: FilesCoach) -> None:
        self._parser = parser
        self._coach = coach

    @property
    def current_path(self) -> str | None:
        return self._parser.current_path

    def feed(self, piece: str) -> str:
        return self._parser.feed(piece)

    def finish(self, *, cut: bool = False, native_calls: bool = False) -> ParsedText:
        parsed = self._parser.finish(cut=cut, native_calls=native_calls)
        return self._coach.look_over(parsed)


def as_context(source: str, label: str, text: str) -> ContextEvent:
    """Return words of aar's own for the model."""
    return ContextEvent(source=source, label=label, content=(TextBlock(text=text),))
