"""Tool calls for models that write them as text: parsers of answers, and conversations as text.

The dialects are told in `aar.providers.base.Dialect`. A parser serves one answer: `Parser.feed` gives the
prose that may be shown while the answer arrives, `Parser.finish` the calls.
"""

from __future__ import annotations

from aar.providers.base import Dialect
from aar.providers.dialects.base import ParsedText, Parser, PlainParser, Resolver, make_resolver
from aar.providers.dialects.files_text import FILES_RULES, render_call, render_result
from aar.providers.dialects.paths import FilesContext, NoFiles
from aar.providers.dialects.render import MessageRenderer, render_messages, render_tools_prompt
from aar.providers.dialects.text_calls import TextCallParser

STOP_SEQUENCES: dict[str, tuple[str, ...]] = {"text": ("\nObservation:", "<tool_response")}
"""Where a model of a dialect begins to invent results."""


def make_parser(
    dialect: Dialect, resolve: Resolver, files: FilesContext | None = None, *, led: bool = False
) -> Parser:
    """Return a parser for one answer of a model that speaks ``dialect``.

    Args:
        dialect: ``native`` gets the safety net, which takes only an answer that is nothing but a call.
        resolve: Our name of a tool for a name that a model used, or ``None``.
        files: The project, for dialect ``files``.
        led: For a small model that is led step by step: what looks like a call is one, whatever follows.
    """
    if dialect == "files":
        from aar.providers.dialects.files_answer import FilesAnswerParser

        return FilesAnswerParser(files if files is not None else NoFiles())
    return TextCallParser(resolve, strict=dialect == "native", eager=led)


__all__ = [
    "FILES_RULES",
    "STOP_SEQUENCES",
    "FilesContext",
    "MessageRenderer",
    "NoFiles",
    "ParsedText",
    "Parser",
    "PlainParser",
    "Resolver",
    "TextCallParser",
    "make_parser",
    "make_resolver",
    "render_call",
    "render_messages",
    "render_result",
    "render_tools_prompt",
]
