"""OpenAI Chat Completions: the stream, both ways."""

from dragoman.dialects.openai_chat.stream_decoder import StreamDecoder
from dragoman.dialects.openai_chat.stream_encoder import StreamEncoder

__all__ = ["StreamDecoder", "StreamEncoder"]
