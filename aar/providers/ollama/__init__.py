"""Ollama over its own wire, with a window that fits the machine."""

from aar.providers.ollama.provider import OllamaProvider

__all__ = ["OllamaProvider"]
