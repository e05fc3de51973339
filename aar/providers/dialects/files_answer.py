"""Whole-file answers (dialect ``files``): each block becomes an ordinary tool call."""

from __future__ import annotations

from aar.protocol.messages import ToolUseBlock
from aar.providers.dialects import file_changes
from aar.providers.dialects.base import ParsedText, join_prose, make_call
from aar.providers.dialects.file_blocks import SHELLS, Block, Command, Part, Text, cut_answer
from aar.providers.dialects.files_gate import Gate
from aar.providers.dialects.files_text import EXAMPLE_PATHS, language_of
from aar.providers.dialects.paths import FilesContext, definitions, plausible, resolve_path, sentence_path

_NOT_FILES = SHELLS | {"text", "output", "log", "plaintext", "pycon", "traceback", "stdout"}
_SHORT_PROSE = 400
_MAX_COMPARED = 60
_LANGUAGE_ALIASES = {
    "py": "python", "python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript",
    "rs": "rust", "golang": "go", "yml": "yaml", "c++": "cpp", "rb": "ruby", "md": "markdown", "cs": "csharp",
}  # fmt: skip


class _UnclearError(Exception):
    """The model has to be asked again; the text tells it why."""


class FilesAnswerParser:
    """Takes an answer of path lines with blocks, ``RUN:`` and ``READ:`` lines."""

    def __init__(self, files: FilesContext) -> None:
        self._files = files
        self._raw: list[str] = []
        self._gate = Gate(files.known_paths())

    @property
    def current_path(self) -> str | None:
        """The file whose content is being received now."""
        return self._gate.path

    def feed(self, piece: str) -> str:
        self._raw.append(piece)
        return self._gate.feed(piece)

    def finish(self, *, cut: bool = False, native_calls: bool = False) -> ParsedText:
        raw = "".join(self._raw)
        told = self._gate.shown.count
        if native_calls:
            return ParsedText(raw, raw[told:])
        parts = cut_answer(raw, self._files.known_paths())
        try:
            calls, texts = _Judge(self._files, parts, cut).judge()
        except _UnclearError as unclear:
            last = parts[-1] if parts else None
            is_cut = cut and isinstance(last, Block) and not last.closed
            return ParsedText(raw, raw[told:], problem=str(unclear), cut=is_cut)
        if not calls:
            return ParsedText(raw, raw[told:])
        prose = join_prose(texts)
        return ParsedText(prose, prose[told:], tuple(calls))


class _Judge:
    """Decides what each part of an answer is."""

    def __init__(self, files: FilesContext, parts: list[Part], cut: bool) -> None:
        self._files = files
        self._parts = parts
        self._cut = cut
        self._calls: list[ToolUseBlock] = []
        self._texts = [""]
        self._written: set[str] = set()
        self._unchanged: list[str] = []
        self._nameless: list[Block] = []

    def judge(self) -> tuple[list[ToolUseBlock], list[str]]:
        """Return the calls and the texts around them; raises `_UnclearError`."""
        for part in self._parts:
            if isinstance(part, Text):
                self._texts[-1] += part.text
            elif isinstance(part, Command):
                self._command(part)
            else:
                self._block(part)
        self._judge_nameless()
        if self._unchanged and not self._calls:
            raise _UnclearError(
                f"{', '.join(self._unchanged)}: the content that you gave is what the file has now, so "
                "nothing would change."
            )
        return self._calls, self._texts

    def _call(self, name: str, **arguments: object) -> None:
        self._calls.append(make_call(name, dict(arguments)))
        self._texts.append("")

    def _command(self, part: Command) -> None:
        if part.kind == "RUN":
            self._call("bash", command=part.value)
        elif self._is_example(part.value):
            self._texts[-1] += part.text
        else:
            self._call("read_file", path=resolve_path(part.value, self._files))

    def _is_example(self, path: str) -> bool:
        return path in EXAMPLE_PATHS and path not in self._files.known_paths()

    def _block(self, block: Block) -> None:
        written = block.path or self._told_in_sentence(block)
        language = block.fence.language if block.fence else ""
        if written is not None and self._is_example(written) and block.body == "Hello, world!\n":
            return
        pairs = file_changes.search_replace(block.body)
        if self._cut and not block.closed and (written or pairs):
            raise _UnclearError(
                f"Your answer was cut off by its length limit inside {written or 'a file'}, so nothing was "
                "written. Answer with one file only, the most important one, and no explanation."
            )
        if pairs is not None:
            self._edits(pairs, written, block.body)
        elif file_changes.looks_like_patch(block.body, language) and not (written or "").endswith(
            (".diff", ".patch")
        ):
            self._patch(block.body, written)
        elif written is not None:
            self._write(block, written)
        else:
            self._texts[-1] += block.text
            if language not in _NOT_FILES:
                self._nameless.append(block)

    def _told_in_sentence(self, block: Block) -> str | None:
        found = sentence_path(block.lead, self._files.known_paths())
        if found is None:
            return None
        path, told = found
        target = resolve_path(path, self._files, block.body)
        if told or plausible(block.body, self._files.content(target)):
            return path
        return None

    def _edits(self, pairs: list[tuple[str, str]], written: str | None, body: str) -> None:
        if written is None:
            raise _UnclearError(
                "A search/replace block has no path. Write the file's path alone on the line before it."
            )
        path = resolve_path(written, self._files)
        for old, new in pairs:
            if old.strip():
                self._call("edit_file", path=path, old_text=old, new_text=new)
            elif self._files.content(path) is None:
                self._call("write_file", path=path, content=new)
            else:
                raise _UnclearError(
                    f"A search block for {path} is empty. Give the complete new content of {path}."
                )

    def _patch(self, body: str, written: str | None) -> None:
        path = resolve_path(written, self._files) if written else None
        patch = file_changes.patch_of(body, path)
        if patch is None:
            raise _UnclearError(
                f"The patch of {path or 'a file'} cannot be applied. Write the path alone on a line, then "
                "the complete new content of the file in a fenced block, not a diff."
            )
        self._call("apply_patch", patch=patch)

    def _write(self, block: Block, written: str) -> None:
        body = block.body
        path = resolve_path(written, self._files, body)
        current = self._files.content(path)
        if block.header is None and block.info_path is None and block.comment_path is not None:
            body = _without_first_line(body, current)
        content = file_changes.without_prose(body, path)
        if not block.newline:
            content = content.removesuffix("\n")
        elided = file_changes.elided_line(content, current, path)
        if elided is not None:
            raise _UnclearError(
                f"{path} is not complete: the line {elided[:80]!r} stands for text that you left out. Write "
                f"the complete new content of {path}, every line of it."
            )
        dropped = file_changes.drops_most(content, current)
        if dropped is not None:
            raise _UnclearError(
                f"{path} has {dropped[0]} lines, but your content has only {dropped[1]}, and it would "
                f"replace the whole file. Write the complete new content of "
                f"{path}, also the lines that stay as they are."
            )
        if path not in self._written and file_changes.same_text(content, current):
            self._unchanged.append(path)
            self._texts.append("")
            return
        self._written.add(path)
        self._call("write_file", path=path, content=content)

    def _judge_nameless(self) -> None:
        """Find the file of a block without a path, where the content leaves one possibility only."""
        if not self._nameless:
            return
        prose = sum(len(part.text.strip()) for part in self._parts if isinstance(part, Text))
        only = len(self._nameless) == 1 and not self._calls and not self._unchanged
        block = self._nameless[0]
        meant = self._candidates(block)
        if only and len(meant) == 1 and not (self._cut and not block.closed):
            if len(definitions(block.body)) < len(definitions(self._files.content(meant[0]) or "")):
                raise _UnclearError(
                    f"A code block without a path has a part of {meant[0]} only, so nothing was written. "
                    f"Write {meant[0]} alone on a line, then its complete new content in the block."
                )
            self._texts = self._texts_without(block)
            self._write(block, meant[0])
        elif (only and prose <= _SHORT_PROSE) or (not only and self._forgotten()):
            names = " or ".join(sorted(meant)[:3])
            hint = f" (is it {names}?)" if names else ""
            raise _UnclearError(
                f"A code block has no path{hint}, so nothing was written. Write the path of the file alone "
                "on the line before the block, and its complete content in the block."
            )

    def _texts_without(self, block: Block) -> list[str]:
        texts = [""]
        for part in self._parts:
            if part is block:
                texts.append("")
            else:
                texts[-1] += part.text
        return texts

    def _forgotten(self) -> bool:
        return any(set(self._candidates(block)) - self._written for block in self._nameless)

    def _candidates(self, block: Block) -> list[str]:
        """Return the known files of the block's language that share a definition with it."""
        names = definitions(block.body)
        language = block.fence.language if block.fence else ""
        language = _LANGUAGE_ALIASES.get(language, language)
        fitting = [path for path in sorted(self._files.known_paths()) if language in ("", language_of(path))]
        if not names or len(fitting) > _MAX_COMPARED:
            return []
        return [path for path in fitting if names & definitions(self._files.content(path) or "")]


def _without_first_line(body: str, current: str | None) -> str:
    first, _, rest = body.partition("\n")
    if current is not None and current.partition("\n")[0].strip() == first.strip():
        return body
    return rest.removeprefix("\n")
