"""Claude over Anthropic's messages API, through its SDK; also on Bedrock and Vertex AI."""

from aar.providers.anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]
