"""Between the text of the prompt and content blocks. Imports the rest of aar: for after the first frame."""

from __future__ import annotations

from collections.abc import Sequence

from aar.core.prompt_queue import Prompt
from aar.protocol.messages import ContentBlock, ImageBlock, ResourceBlock, TextBlock
from aar.transports.tui.prompt.chips import Chips, PastedImage


def content_of(text: str, images: Sequence[PastedImage]) -> str | tuple[ContentBlock, ...]:
    """Return what is sent for ``text`` with ``images``."""
    if not images:
        return text
    blocks = [ImageBlock(media_type=image.media_type, data=image.data, name=image.name) for image in images]
    return (TextBlock(text=text), *blocks)


def text_of(prompt: Prompt) -> str:
    """Return the text of a waiting prompt; the labels of its images stand in it."""
    return "\n".join(block.text for block in prompt if isinstance(block, TextBlock | ResourceBlock))


def chips_of(prompt: Prompt) -> Chips:
    """Return the images of a waiting prompt as chips."""
    chips = Chips()
    for block in prompt:
        if isinstance(block, ImageBlock):
            chips.add(PastedImage(block.name or "image", block.media_type, block.data))
    return chips
