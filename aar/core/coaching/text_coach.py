"""Help for a small model that calls tools in plain text (dialect ``text``).

Such a model answers in words where it should act, changes files that it never saw, and forgets the task
behind a long result. So it is shown the names of the project's files, is led from reading over changing
to testing by one sentence at the end of each request, and looks at a file before it may change it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aar.core.coaching.files_coach import ABOUT_RUNNING, IS_QUESTION, FilesCoach, as_context
from aar.protocol.events import Event
from aar.protocol.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from aar.providers.dialects.base import make_call
from aar.providers.dialects.grammar import Choices, answer_grammar
from aar.providers.text_tools import ParsedText

_CHANGING = frozenset({"write_file", "edit_file"})
_MAX_OUTPUT = 800
_MAX_WORDS = 1_200
_MAX_LOOKS = 3
_MAX_CHECKS = 3
_MAX_CHOICES = 40
_ABOUT_NEW = re.compile(r"\b(?:write|create|add|new|make|implement|split|move|extract|put)\b", re.IGNORECASE)

START = "Answer with one tool call."
CHANGE = (
    "Answer with one tool call: edit_file or write_file to change a file, or read_file to see another file."
)
TEST = "If another file must change too, change it now. Else check your work with one bash call."
MEND = "That failed. Read why, then answer with one tool call that mends it."
REPORT = "If the task is done, say in one sentence what you changed. Else answer with one tool call."
NOT_ACTED = (
    "The task is not done: words change and check nothing. Answer with one tool call, in the form "
    '<tool_call>{"name": …, "arguments": {…}}</tool_call>.'
)
SEEN_ALREADY = "You have read {path} already; its content stands above and has not changed."


@dataclass
class TextCoach(FilesCoach):
    """Watches one run of a small model that calls tools.

    Attributes:
        takes_grammar: Whether the server holds answers to a grammar.
        changed: Whether a file was changed in this run.
        ran: Whether it ran a command in this run.
        checked: Whether a command ran after the last change.
        failed_checks: How many commands failed after a change.
        tested: Whether a command ran well after the last change.
    """

    takes_grammar: bool = False
    changed: bool = False
    ran: bool = False
    checked: bool = False
    failed_checks: int = 0
    tested: bool = False
    _seen: dict[str, str] = field(default_factory=dict[str, str])
    _asked: dict[str, ToolUseBlock] = field(default_factory=dict[str, ToolUseBlock])

    def opening(self, words: str, failure: str) -> Event:
        """Return the event that names the project's files; it comes before the user's words."""
        self.words = words
        self.failure = failure
        self._note_known_problems()
        return as_context("notes", "project", self.project.listing())

    def reminder(self) -> Event:
        """Return the event that tells how to answer; it comes after the user's words."""
        text = "Answer in words, or with one tool call to look first." if self._is_question() else START
        return as_context("notes", "form of the answer", text)

    def form(self, paths: Sequence[str] = ()) -> str:
        """Return how to answer now."""
        return START

    @property
    def max_output_tokens(self) -> int:
        """Tokens of an answer; a runaway ends there."""
        return _MAX_OUTPUT

    def fresh(self) -> Message | None:
        """Return ``None``: the conversation always serves, for what was read stands in it."""
        return None

    def remind(self, messages: list[Message]) -> list[Message]:
        """Return ``messages`` with the next thing to do at their end, after results of tools."""
        last = messages[-1] if messages else None
        results = [] if last is None else [b for b in last.content if isinstance(b, ToolResultBlock)]
        if last is None or not results:
            return messages
        for result in results:
            self._take(result)
        words = self.words if len(self.words) <= _MAX_WORDS else self.words[:_MAX_WORDS] + " …"
        text = f"Task: {words}\n{self._next(results[-1])}"
        return [*messages[:-1], Message(role="user", content=(*last.content, TextBlock(text=text)))]

    def extra(self) -> Mapping[str, Any]:
        """Return fields of the next request: a grammar, where the server takes one."""
        if not self.takes_grammar:
            return {}
        paths = [path for path in self.project.paths if '"' not in path and "\\" not in path]
        seen = [path for path in paths if path in self._seen and not self._is_unasked_test(path)]
        unseen = [path for path in self._by_weight(paths) if self._is_unseen(path)]
        choices = Choices(
            readable=unseen[:_MAX_CHOICES],
            editable=seen[:_MAX_CHOICES],
            # What failed once fails again until something is changed.
            bash=self.tested or not self.checked,
            writable=seen[:_MAX_CHOICES],
            # While nothing is known, a new file would be a guess at one that is there.
            new_files=bool(self._seen or not unseen) and _ABOUT_NEW.search(self.words) is not None,
            words=self._may_end(),
        )
        return {"grammar": answer_grammar(choices)}

    def _by_weight(self, paths: Sequence[str]) -> list[str]:
        """Return ``paths`` with those first that seem to matter."""
        if len(paths) <= _MAX_CHOICES:
            return list(paths)
        first = [file.path for file in self.project.select(self.words, self.failure, self.budget)]
        return [*first, *(path for path in paths if path not in first)]

    def _take(self, result: ToolResultBlock) -> None:
        call = self._asked.pop(result.call_id, None)
        if call is None:
            return
        path = str(call.arguments.get("path", ""))
        if call.name in _CHANGING and not result.is_error:
            self.changed, self.checked, self.tested = True, False, False
        if call.name == "bash":
            self.ran, self.checked = True, self.changed
            self.tested = self.changed and not _has_failed(result)
            self.failed_checks += self.changed and not self.tested
        if path and (call.name == "read_file" or call.name in _CHANGING) and not result.is_error:
            self._seen[path] = self.project.content(path) or ""

    def _next(self, result: ToolResultBlock) -> str:
        problems = [text for text in self._problems(self.project.paths) if text not in self._known_problems]
        if self.changed and problems:
            return "\n".join([*problems[:4], MEND])
        if _has_failed(result):
            return MEND
        if self.tested:
            return REPORT
        if self.changed:
            return TEST
        return REPORT if self._is_question() else CHANGE

    def _may_end(self) -> bool:
        """Tell whether words alone can be the whole answer now."""
        ran = self.ran and ABOUT_RUNNING.search(self.words) is not None
        return self.tested or self.failed_checks >= _MAX_CHECKS or ran or self._is_question()

    def _is_question(self) -> bool:
        return IS_QUESTION.search(self.words) is not None

    # --- the answer ----------------------------------------------------------------------------------

    def look_over(self, parsed: ParsedText) -> ParsedText:
        """Let a model look before it changes; ask it again when it did nothing."""
        if parsed.problem is not None:
            return parsed
        if not parsed.calls:
            return parsed if self._may_end() else replace(parsed, problem=NOT_ACTED)
        done = self._renamed_already(parsed.calls)
        if done is not None:
            return replace(parsed, calls=(), problem=f"{done} {TEST}")
        kept = self._led(self._without_tests(list(parsed.calls)))
        if not kept:
            path = parsed.calls[0].arguments.get("path")
            return replace(parsed, calls=(), problem=f"{SEEN_ALREADY.format(path=path)} {CHANGE}")
        self._remember(kept)
        self._asked = {call.call_id: call for call in kept}
        return replace(parsed, calls=tuple(kept))

    def _led(self, calls: list[ToolUseBlock]) -> list[ToolUseBlock]:
        """Return ``calls`` up to the first that was made without knowing the file; it becomes a look."""
        kept: list[ToolUseBlock] = []
        for call in calls:
            path = str(call.arguments.get("path", ""))
            changes = call.name in _CHANGING
            if changes and self._is_unseen(path):
                return [*kept, *self._looks(call, [path])]
            invented = call.name in ("read_file", "edit_file") and self.project.content(path) is None
            unasked = changes and self._changes_unasked_test(call)
            if (invented or unasked or self._is_repeated(call)) and (looks := self._looks(call, [])):
                return [*kept, *looks]
            if unasked or self._is_repeated(call):
                return kept
            if call.name == "read_file" and not self._seen and self._is_unseen(path):
                return [*kept, call, *self._looks(call, [])]
            kept.append(self._completed(call))
        return kept

    def _looks(self, call: ToolUseBlock, paths: list[str]) -> list[ToolUseBlock]:
        """Return calls that read ``paths``, and what else of the project matters and was not read."""
        budget = self.budget // 2
        asked = str(call.arguments.get("path", ""))
        matter = [file.path for file in self.project.select(f"{self.words} {asked}", self.failure, budget)]
        more = [path for path in matter if path not in self._seen and path not in (*paths, asked)]
        wanted = (paths + more)[:_MAX_LOOKS]
        return [make_call("read_file", {"path": path}) for path in wanted]

    def _completed(self, call: ToolUseBlock) -> ToolUseBlock:
        """Keep an edit from dropping definitions that it was not to touch; rename in the whole file."""
        if call.name != "edit_file":
            return super()._completed(call)
        path, old, new = (str(call.arguments.get(name, "")) for name in ("path", "old_text", "new_text"))
        text = self.project.content(path)
        if text is None or not old:
            return call
        if self._is_renaming(call):
            # Only whole names: `proc` stands in `process` too.
            renamed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, text)
            arguments = {"path": path, "content": renamed}
            return call.model_copy(update={"name": "write_file", "arguments": arguments})
        if text.count(old) != 1:
            return call
        whole = call.model_copy(
            update={"name": "write_file", "arguments": {"path": path, "content": text.replace(old, new)}}
        )
        kept = super()._completed(whole)
        if kept is whole:
            return call
        # It named an old definition only to say where the new one goes.
        both = text.replace(old, f"{new.strip()}\n\n\n{old}")
        if not new[:1].isspace() and _is_python(both):
            return whole.model_copy(update={"arguments": {"path": path, "content": both}})
        return kept

    def _is_renaming(self, call: ToolUseBlock) -> bool:
        old, new = (str(call.arguments.get(name, "")) for name in ("old_text", "new_text"))
        names = call.name == "edit_file" and old.isidentifier() and new.isidentifier()
        return names and self._is_spoken_of(old)

    def _renamed_already(self, calls: Sequence[ToolUseBlock]) -> str | None:
        """Return what to tell a model that renames where the old name is gone, and where it still stands."""
        for call in calls:
            path, old = str(call.arguments.get("path", "")), str(call.arguments.get("old_text", ""))
            holders = self._holders(old) if self._is_renaming(call) else [path]
            if path not in holders:
                left = f"It still stands in {', '.join(holders[:8])}: change these." if holders else ""
                return f"{path} does not hold the name `{old}` any more. {left}".strip()
        return None

    def _holders(self, name: str) -> list[str]:
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return [path for path in self.project.paths[:300] if whole.search(self.project.content(path) or "")]

    def _is_unseen(self, path: str) -> bool:
        return bool(path) and path not in self._seen and self.project.content(path) not in (None, "")

    def _is_repeated(self, call: ToolUseBlock) -> bool:
        if call.name != "read_file" or set(call.arguments) != {"path"}:
            return False
        path = str(call.arguments["path"])
        return path in self._seen and self._seen[path] == self.project.content(path)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _has_failed(result: ToolResultBlock) -> bool:
    """Tell whether a tool failed, or a command ended with another exit code than 0."""
    last = result.output.rstrip().rpartition("\n")[2]
    if "no tests ran" in result.output and last == "exit code: 5":
        return False
    return result.is_error or (result.name == "bash" and last.startswith("exit code:"))
