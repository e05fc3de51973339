"""Gemini, and Gemini on Vertex AI, through the SDK's own request path."""

from aar.providers.gemini.provider import GeminiProvider

__all__ = ["GeminiProvider"]
