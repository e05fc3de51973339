"""A grammar (GBNF, as llama.cpp takes it) for the answers of a model that calls tools in text.

A small model forgets to escape quotes, invents paths and writes on after its call. Where the server takes
a grammar none of this can happen. The format is told in llama.cpp, ``grammars/README.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

_COMMON = r"""
path ::= "\"" [A-Za-z0-9_] [A-Za-z0-9_./-]* "\""
text ::= "\"" character+ "\""
anything ::= "\"" character* "\""
character ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])
words ::= [A-Z] [^<{`\n]*
"""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the next answer may be.

    Attributes:
        readable: Paths that ``read_file`` may be given.
        editable: Paths that ``edit_file`` may be given.
        writable: Paths that ``write_file`` may be given.
        new_files: Whether ``write_file`` may be given any other path too.
        bash: Whether ``bash`` may be called.
        words: Whether it may be words without a call.
    """

    readable: Sequence[str] = ()
    editable: Sequence[str] = ()
    writable: Sequence[str] = ()
    new_files: bool = True
    bash: bool = True
    words: bool = False


def answer_grammar(choices: Choices) -> str:
    """Return the grammar of one call, or of words where these are allowed."""
    calls: list[str] = []
    if choices.readable:
        calls.append(_call("read_file", path=_one_of(choices.readable)))
    if choices.editable:
        calls.append(_call("edit_file", path=_one_of(choices.editable), old_text="text", new_text="anything"))
    if choices.writable or choices.new_files:
        known = [_one_of(choices.writable)] if choices.writable else []
        paths = " | ".join([*known, *(["path"] if choices.new_files else [])])
        calls.append(_call("write_file", path=f"({paths})", content="text"))
    if choices.bash:
        calls.append(_call("bash", command="text"))
    call = f"call ::= {_quoted('<tool_call>')} [\\n] ({' | '.join(calls)}) [\\n] {_quoted('</tool_call>')}"
    roots = [*(["call"] if calls else []), *(["words"] if choices.words or not calls else [])]
    return "\n".join([f"root ::= {' | '.join(roots)}", *([call] if calls else []), _COMMON.strip(), ""])


def _call(tool: str, **arguments: str) -> str:
    parts = [_quoted(f'{{"name": "{tool}", "arguments": {{')]
    for number, (name, rule) in enumerate(arguments.items()):
        parts += [_quoted(f'{", " if number else ""}"{name}": '), rule]
    return " ".join([*parts, _quoted("}}")])


def _one_of(paths: Sequence[str]) -> str:
    return f"({' | '.join(_quoted(json.dumps(path, ensure_ascii=False)) for path in paths)})"


def _quoted(text: str) -> str:
    """Return ``text`` as a literal of the grammar; JSON's escapes are among those it knows."""
    return json.dumps(text, ensure_ascii=False)
