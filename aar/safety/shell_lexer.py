"""A second, strict reader of shell words.

It knows only plain words, quotes without expansion, ``&& || ; |``, newlines and redirections, and gives
up (``None``) on everything else. A command counts as plain only when this reader and the syntax tree agree
on every word, so that no difference between a grammar and the real shell can hide a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aar.safety.shell_types import Redirection, words

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_BRACES = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}|\{[^{}]*\{")
_RESERVED = words(
    "! { } [[ ]] if then elif else fi for while until do done case esac select function coproc in"
)
_REDIRECTS = ("&>>", "&>", ">>", ">|", ">&", "<>", "<&", ">", "<")
_SPECIAL = frozenset("$`()")
_QUOTES = frozenset("'\"\\")


@dataclass(slots=True)
class LexedWord:
    """A word: its text, and the same with every quoted character blanked out (NUL)."""

    text: str
    bare: str

    @property
    def glob(self) -> bool:
        """Whether the shell may replace the word by file names."""
        return any(mark in self.bare for mark in "*?[")


@dataclass(slots=True)
class LexedCommand:
    """A simple command as this reader sees it."""

    words: list[LexedWord] = field(default_factory=list[LexedWord])
    redirections: list[Redirection] = field(default_factory=list[Redirection])

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)


class _NotPlainError(Exception):
    """The text holds something that this reader does not know."""


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[LexedCommand] = [LexedCommand()]

    def run(self) -> list[LexedCommand]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif not self._redirection("") and not self._operator():
                self._word()
        return [command for command in self.commands if command.words or command.redirections]

    def _operator(self) -> bool:
        rest = self.text[self.at : self.at + 2]
        if rest in {"&&", "||"}:
            self.at += 2
        elif rest in {"|&", ";;", ";&"} or rest[0] == "&":
            raise _NotPlainError
        elif rest[0] in ";|\n":
            self.at += 1
        else:
            return False
        self.commands.append(LexedCommand())
        return True

    def _redirection(self, descriptor: str) -> bool:
        operator = next((op for op in _REDIRECTS if self.text.startswith(op, self.at)), None)
        if operator is None:
            return False
        start = len(self.text[: self.at - len(descriptor)].encode("utf-8", "replace"))
        self.at += len(operator)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at >= len(self.text) or self.text[self.at] in "<>()&|;\n#":
            raise _NotPlainError
        word = self._read_word()
        if word.glob or "{" in word.bare:
            raise _NotPlainError
        self.commands[-1].redirections.append(Redirection(operator, word.text, static=True, start=start))
        return True

    def _word(self) -> None:
        word = self._read_word()
        follows = self.text[self.at : self.at + 1]
        if follows in {"<", ">"} and word.bare.isascii() and word.bare.isdigit():
            self._redirection(word.bare)
            return
        before = self.commands[-1].words
        if _BRACES.search(word.bare) or (
            not before and (word.bare in _RESERVED or _ASSIGNMENT.match(word.bare))
        ):
            raise _NotPlainError
        before.append(word)

    def _read_word(self) -> LexedWord:
        text: list[str] = []
        bare: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|<>":
                break
            if char in _SPECIAL or not char.isprintable():
                raise _NotPlainError
            piece = self._piece(char)
            text.append(piece)
            bare.append(char if char not in _QUOTES else "\0" * len(piece))
        return LexedWord("".join(text), "".join(bare))

    def _piece(self, char: str) -> str:
        if char == "'":
            return self._until_single_quote()
        if char == '"':
            return self._until_double_quote()
        if char != "\\":
            self.at += 1
            return char
        escaped = self.text[self.at + 1 : self.at + 2]
        if not escaped:
            raise _NotPlainError
        self.at += 2
        return "" if escaped == "\n" else escaped

    def _until_single_quote(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise _NotPlainError
        piece = self.text[self.at + 1 : end]
        self.at = end + 1
        return piece

    def _until_double_quote(self) -> str:
        piece: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(piece)
            if char in "$`":
                raise _NotPlainError
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in {"\\", '"', "$", "`", "\n"}:
                self.at += 1
                char = "" if self.text[self.at] == "\n" else self.text[self.at]
            piece.append(char)
            self.at += 1
        raise _NotPlainError


def lex_plain(text: str) -> list[LexedCommand] | None:
    """Return the simple commands of ``text``, or ``None`` when it holds anything but plain syntax."""
    try:
        return _Lexer(text).run()
    except _NotPlainError:
        return None
