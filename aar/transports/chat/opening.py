"""Opens a chat: the parts, the terminal, a greeting; closes all of it again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from aar.commands.base import one_line
from aar.memory.prompt_history import PromptHistory
from aar.runtime import open_runtime
from aar.runtime.base import base_arguments
from aar.runtime.conversation import Conversation
from aar.runtime.parts import Runtime
from aar.transports.chat.line_input import LineReader, StoredHistory, is_dumb, plain_output
from aar.transports.chat.paper import Paper
from aar.transports.chat.talk import Talk, examine
from aar.transports.lost import tell_lost

_NARROW_HISTORY = 500


def chat(options: Mapping[str, Any], which: Mapping[str, Any], prompt: str | None) -> int:
    """Talk at the terminal until the user leaves; return the exit code.

    Args:
        options: For `open_runtime`.
        which: For `Runtime.open_session`.
        prompt: Sent at once.

    Raises:
        AarError: A setting or key is wrong, or there is no such session.
    """
    with plain_output() if is_dumb() else nullcontext():
        return asyncio.run(_chat(options, which, prompt))


async def _chat(options: Mapping[str, Any], which: Mapping[str, Any], prompt: str | None) -> int:
    paper = Paper()
    runtime = open_runtime(interactive=True, goes_on=which, **options)
    try:
        session = runtime.open_session(**which)
    except BaseException:
        await runtime.aclose()
        raise
    conversation = Conversation(runtime, session)
    try:
        reader = LineReader(
            _history(runtime),
            plain=is_dumb() or runtime.config.tui.screen_reader,
            hint=lambda: paper.line("(Ctrl-D or /quit leaves.)", "dim"),
        )
        talk = Talk(conversation, reader, paper, lambda: examine(base_arguments(options)))
        _greet(conversation, paper)
        runtime.servers.start()
        code = await talk.run(prompt)
        if not conversation.session.degraded:
            kept = f"Session {conversation.session.session_id} is kept; `aar chat --continue` goes on."
            paper.line(kept, "dim")
        return code
    finally:
        await conversation.aclose()
        tell_lost(conversation.session)


def _history(runtime: Runtime) -> StoredHistory | None:
    if not runtime.config.session.store:
        return None
    kept = PromptHistory(runtime.base.paths.data / "prompt_history.jsonl")
    return StoredHistory(
        lambda: kept.entries(runtime.workspace)[-_NARROW_HISTORY:],
        lambda text: kept.add(text, runtime.workspace),
    )


def _greet(conversation: Conversation, paper: Paper) -> None:
    runtime, session = conversation.runtime, conversation.session
    for notice in runtime.notices:
        paper.line(f"! {notice}", "yellow")
    for notice in runtime.opening_notices(session):
        paper.line(f"! {notice.message}", "red" if notice.level == "error" else "yellow")
    wall = runtime.wall()
    held = "no wall" if wall == "none" else f"wall {wall}"
    paper.line(
        f"aar in {runtime.workspace}: {runtime.active.name}, mode {conversation.mode}, {held}.", "bold"
    )
    if session.messages():
        paper.line(f"Going on with “{one_line(session.title or session.session_id, 80)}”.")
    paper.line("/help lists the commands; Ctrl-C interrupts, Ctrl-D leaves.", "dim")
