"""The transcript: blocks drawn as lines, the finished ones once, the open one as it grows."""

from aar.transports.tui.transcript.view import Transcript

__all__ = ["Transcript"]
