"""Keeps a conversation inside the window of the model."""

from aar.core.compaction.compactor import Compactor

__all__ = ["Compactor"]
