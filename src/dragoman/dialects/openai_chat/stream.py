"""OpenAI Chat Completions: the stream, both ways."""

from dragoman.dialects.openai_chat.stream_reader import StreamDecoder
from dragoman.dialects.openai_chat.stream_writer import StreamEncoder

__all__ = ["StreamDecoder", "StreamEncoder"]
