"""Reads a shell command into the simple commands that it consists of.

The syntax tree comes from tree-sitter-bash. Only an allow-list of node kinds counts as *plain*; for all
else there is a reason, and the commands inside (substitutions, subshells, loops, ``bash -c``, ``eval``,
``xargs``, ``find -exec``, wrappers) are found all the same: deny rules and hard stops see each of them.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from aar.safety.shell_lexer import LexedCommand, lex_plain
from aar.safety.shell_types import (
    MAX_CHARS,
    MAX_COMMANDS,
    MAX_DEPTH,
    Redirection,
    ShellCommand,
    SimpleCommand,
    words,
)
from aar.safety.shell_wrappers import TOO_DEEP, look_through

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_PLAIN_KINDS = frozenset(
    {
        "program", "list", "pipeline", "command", "command_name", "word", "string", "string_content",
        "raw_string", "number", "concatenation", "comment",
        # A redirection is not plain by itself: the policy judges its target as a read or a write.
        "redirected_statement", "file_redirect", "file_descriptor",
    }
)  # fmt: skip
_PLAIN_TOKENS = frozenset(
    {"&&", "||", ";", "|", "\n", '"', "'", ">", ">>", "<", ">&", "<&", ">|", "&>", "&>>", "<>"}
)
_REASONS = {
    "command_substitution": "a command substitution decides what runs",
    "process_substitution": "a process substitution starts another command",
    "simple_expansion": "a variable decides what runs",
    "expansion": "an expansion decides what runs",
    "arithmetic_expansion": "an arithmetic expansion",
    "brace_expression": "a brace expansion makes words",
    "variable_assignment": "an assignment changes how later commands run",
    "variable_assignments": "an assignment changes how later commands run",
    "declaration_command": "a declaration changes how later commands run",
    "unset_command": "unset changes how later commands run",
    "heredoc_redirect": "a here-document feeds a command",
    "heredoc_body": "a here-document feeds a command",
    "herestring_redirect": "a here-string feeds a command",
    "function_definition": "a function is defined",
    "subshell": "a subshell",
    "compound_statement": "a group of commands",
    "negated_command": "a negated command",
    "test_command": "a test expression",
    "ansi_c_string": "a $'…' string",
    "ERROR": "the command cannot be read as shell syntax",
}
_POISON = words(
    "export alias unalias source . eval trap declare typeset local readonly unset enable hash set shopt bind"
    " complete builtin exec let read mapfile readarray getopts"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u206f"
    r"\u3000\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_ANSI_C = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_C_NAMES = dict(zip("abeEfnrtv", "\a\b\033\033\f\n\r\t\v", strict=True))
_BACKSLASH = re.compile(r"\\(\n|.)", re.DOTALL)
_CONTINUATION = re.compile(r"\\\n")
_STATEMENTS = frozenset(
    {"command", "declaration_command", "unset_command", "test_command", "variable_assignment"}
)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_command(text: str) -> ShellCommand:
    """Return what ``text`` runs. Never raises: what cannot be read is ``broken``."""
    return _parse_cached(text)


@lru_cache(maxsize=256)
def _parse_cached(text: str) -> ShellCommand:
    return _parse(text, 0)


class _Budget:
    """How many commands one text may hold, those inside of others included."""

    def __init__(self) -> None:
        self.left = MAX_COMMANDS

    def spend(self) -> bool:
        """Take one; false when none is left."""
        self.left -= 1
        return self.left >= 0


def _parse(text: str, depth: int, budget: _Budget | None = None) -> ShellCommand:
    budget = budget or _Budget()
    if len(text) > MAX_CHARS or depth > MAX_DEPTH:
        budget.left = -1
        return ShellCommand(text, too_large=True, reasons=("the command is too large to judge every part",))
    reasons: dict[str, None] = {}
    if _CONTROL.search(text):
        reasons["the command holds control or invisible characters"] = None
        text = text.replace("\r", "\n").encode("utf-8", "replace").decode()
    reader = _TreeReader(text, depth, budget)
    reader.read()
    reasons.update(dict.fromkeys(reader.reasons))
    commands, redirections = reader.commands, reader.redirections
    if not reader.broken:
        commands, redirections = _agree(text, reader, reasons)
    # The shell joins continued lines before it reads words; a tree made from the raw text may not.
    if _CONTINUATION.search(text) and reasons:
        joined = _parse(_CONTINUATION.sub("", text), depth, budget)
        commands, redirections = [*commands, *joined.commands], [*redirections, *joined.redirections]
    own = (reason for command in commands for part in command.walk() for reason in part.reasons)
    return ShellCommand(
        text,
        tuple(commands),
        tuple(redirections),
        syntax=tuple(reasons),
        reasons=tuple(reasons | dict.fromkeys(own)),
        broken=reader.broken,
        too_large=reader.too_large or budget.left < 0,
    )


def _agree(
    text: str, reader: _TreeReader, reasons: dict[str, None]
) -> tuple[list[SimpleCommand], list[Redirection]]:
    """Compare the tree with the strict reader; where they differ, keep the commands of both."""
    lexed = lex_plain(text)
    if lexed is None:
        if not reasons and text.strip():
            reasons["the command is more than plain words"] = None
        return reader.commands, reader.redirections
    by_words = [item for item in lexed if item.words]
    if [item.argv for item in by_words] == [command.argv for command in reader.commands]:
        commands = [
            _with_globs(command, item) for command, item in zip(reader.commands, by_words, strict=True)
        ]
        return commands, [redirect for item in lexed for redirect in item.redirections]
    if not reasons:
        reasons["the command can be read in more than one way"] = None
    extra = [_build(item.argv, reader.depth, reader.budget) for item in by_words]
    return [*reader.commands, *extra], [
        *reader.redirections,
        *(r for item in lexed for r in item.redirections),
    ]


def _with_globs(command: SimpleCommand, item: LexedCommand) -> SimpleCommand:
    globs = frozenset(index for index, word in enumerate(item.words) if word.glob)
    return replace(command, globs=globs) if globs else command


def _build(
    argv: tuple[str, ...],
    depth: int,
    budget: _Budget,
    *,
    dynamic: frozenset[int] = frozenset(),
    start: int = 0,
    then: str = "",
    reasons: tuple[str, ...] = (),
) -> SimpleCommand:
    """Make a command and, where it starts others, those as well."""
    if not budget.spend() or depth > MAX_DEPTH:
        budget.left = -1
        return SimpleCommand(argv, reasons=(TOO_DEEP,), start=start)
    through = look_through(argv, lambda text: _parse(text, depth + 1, budget))
    if TOO_DEEP in through.reasons:
        budget.left = -1
    more = reasons + through.reasons
    name = argv[0].rsplit("/", 1)[-1] if argv else ""
    if name in _POISON:
        more = (*more, f"{name} changes how later commands run")
    if 0 in dynamic:
        more = (*more, "the name of the command is not known before it runs")
    inner = tuple(_build(item, depth + 1, budget) for item in through.argvs)
    return SimpleCommand(
        argv,
        static=not dynamic,
        name_static=0 not in dynamic,
        inner=inner + through.commands,
        transparent=through.transparent,
        reasons=more,
        redirections=through.redirections,
        start=start,
        then=then,
    )


class _TreeReader:
    """Walks a syntax tree once, without recursion."""

    def __init__(self, text: str, depth: int, budget: _Budget) -> None:
        self.source = text.encode("utf-8", "replace")
        self.budget = budget
        self.depth = depth
        self.commands: list[SimpleCommand] = []
        self.redirections: list[Redirection] = []
        self.reasons: list[str] = []
        self.broken = False
        self.too_large = False

    def read(self) -> None:
        root = _parser().parse(self.source).root_node
        stack = [root]
        while stack:
            node = stack.pop()
            self._note(node)
            if node.type == "file_redirect":
                self._redirect(node)
            elif node.type in _STATEMENTS and not _inside_statement(node):
                self._statement(node)
                if self.budget.left < 0:
                    self.too_large = True
                    return
            stack.extend(reversed(node.children))

    def _note(self, node: Node) -> None:
        if node.type == "ERROR" or node.is_missing:
            self.broken = True
            self.reasons.append(_REASONS["ERROR"])
        elif node.is_named:
            if node.type not in _PLAIN_KINDS:
                self.reasons.append(
                    _REASONS.get(node.type, f"{node.type.replace('_', ' ')} is not plain syntax")
                )
        elif node.type == "&":
            self.reasons.append("a part runs in the background")
        elif node.type not in _PLAIN_TOKENS:
            self.reasons.append(f"{node.type!r} is not plain syntax")

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _redirect(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), ">")
        targets = node.children_by_field_name("destination")
        if not targets:
            return
        text, static = self._word(targets[0])
        self.redirections.append(Redirection(operator, text, static, start=node.start_byte))

    def _statement(self, node: Node) -> None:
        argv: list[str] = []
        dynamic: set[int] = set()
        for child in [*node.children, *self._swallowed(node)]:
            if child.type in {"file_redirect", "heredoc_redirect", "herestring_redirect"}:
                continue
            if child.type == "variable_assignment" and node.type == "command":
                self._hidden_assignment(child)
                continue
            text, static = self._word(child)
            if not static:
                dynamic.add(len(argv))
            argv.append(text)
        if node.type == "variable_assignment":
            argv, dynamic = [self._text(node)], set()
        if argv:
            self.commands.append(
                _build(
                    tuple(argv),
                    self.depth,
                    self.budget,
                    dynamic=frozenset(dynamic),
                    start=node.start_byte,
                    then=_operator_after(node),
                )
            )

    def _hidden_assignment(self, node: Node) -> None:
        """``A=b cmd``: the assignment is a part of its own, for deny rules."""
        self.commands.append(SimpleCommand((self._text(node),), start=node.start_byte))

    def _swallowed(self, node: Node) -> list[Node]:
        """Words after a redirection's target are arguments, though the grammar calls them targets."""
        parent = node.parent
        if parent is None or parent.type != "redirected_statement":
            return []
        redirects = [child for child in parent.children if child.type == "file_redirect"]
        return [extra for item in redirects for extra in item.children_by_field_name("destination")[1:]]

    def _word(self, node: Node) -> tuple[str, bool]:
        """Return a word with its quotes resolved, and whether that is all there is to know."""
        if node.type == "command_name" and node.child_count:
            return self._joined(node)
        raw = self._text(node)
        if node.type == "raw_string":
            return raw[1:-1], True
        if node.type == "string":
            static = all(
                child.type == "string_content" for child in node.named_children
            ) and not raw.startswith("$")
            return re.sub(r'\\([\\"$`\n])', _unescape, raw.strip("$")[1:-1]), static
        if node.type == "ansi_c_string":
            return _ansi_c(raw[2:-1]), True
        if node.type == "concatenation":
            return self._joined(node)
        if (
            node.type in {"word", "number", "test_operator", "variable_name", "regex", "extglob_pattern"}
            or not node.is_named
        ):
            return _BACKSLASH.sub(_unescape, raw), not node.named_child_count
        return raw, False

    def _joined(self, node: Node) -> tuple[str, bool]:
        pieces = [self._word(child) for child in node.children]
        return "".join(text for text, _ in pieces), all(static for _, static in pieces)


def _unescape(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _ansi_c(body: str) -> str:
    """Return what stands between ``$'`` and ``'`` as bash reads it ("ANSI-C Quoting" of its manual)."""
    return _ANSI_C.sub(_one_ansi_c, body).partition("\0")[0]


def _one_ansi_c(match: re.Match[str]) -> str:
    plain, octal, *numbers, control = match.groups()
    if plain is not None:
        return _ANSI_C_NAMES.get(plain, plain)
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    if control is not None:
        return chr(ord(control.upper()) & 0x1F)
    code = int(next(number for number in numbers if number is not None), 16)
    return chr(code) if code <= sys.maxunicode else match[0]


def _inside_statement(node: Node) -> bool:
    """Whether the statement is itself a word list of another one (``export A=b``, ``A=b cmd``)."""
    if node.type != "variable_assignment" or node.parent is None:
        return False
    return node.parent.type in {"command", "declaration_command"}


def _operator_after(node: Node) -> str:
    current: Node | None = node
    while current is not None:
        sibling = current.next_sibling
        while sibling is not None and sibling.is_named:
            if sibling.type in _STATEMENTS or sibling.type in {"list", "pipeline", "redirected_statement"}:
                return ""
            sibling = sibling.next_sibling
        if sibling is not None:
            return sibling.type
        current = current.parent
    return ""
