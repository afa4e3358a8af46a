"""Strict checkers: a request body in, the objections of the vendor's server out, in its own words.

An empty list means that the server accepts the request. `check_stream` is for the other direction: a streamed answer
in, the objections of the vendor's clients out. Checkers are pure functions on JSON.
"""

from dragoman.testing.checkers.anthropic import check_anthropic
from dragoman.testing.checkers.gemini import check_gemini
from dragoman.testing.checkers.model_rules import check_models
from dragoman.testing.checkers.ollama import check_ollama
from dragoman.testing.checkers.openai_chat import check_openai_chat
from dragoman.testing.checkers.openai_responses import check_openai_responses
from dragoman.testing.checkers.streams import check_stream

__all__ = [
    "check_anthropic",
    "check_gemini",
    "check_models",
    "check_ollama",
    "check_openai_chat",
    "check_openai_responses",
    "check_stream",
]
