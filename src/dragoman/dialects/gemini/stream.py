"""Gemini generateContent: the stream, both ways. https://ai.google.dev/api/generate-content (digest read 2026-11-15)

    data: {"candidates": [{"content": {"parts": [{"text": "..."}], "role": "model"}, "index": 0}], ...}

Every frame is a whole reply with only what is new in it; the last one has the reason and the counts, and the stream
ends by closing. Google's own client breaks on comments, `event:` lines and `[DONE]`. Without `alt=sse` the frames are
the elements of one JSON array.
"""

from dragoman.dialects.gemini.stream_decoder import StreamDecoder
from dragoman.dialects.gemini.stream_encoder import StreamEncoder

__all__ = ["StreamDecoder", "StreamEncoder"]
