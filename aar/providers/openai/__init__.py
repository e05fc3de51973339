"""OpenAI and Azure: the Responses API, through the SDK's low-level calls."""

from aar.providers.openai.provider import OpenAIProvider

__all__ = ["OpenAIProvider"]
