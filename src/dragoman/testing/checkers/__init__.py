"""Strict checkers: what a vendor's server would say to a request body, as a list of complaints in its own words.

An empty list is a request it takes. They are pure functions on JSON: for your own tests, and for scripted providers.
"""

from dragoman.testing.checkers.anthropic import check_anthropic
from dragoman.testing.checkers.gemini import check_gemini
from dragoman.testing.checkers.ollama import check_ollama
from dragoman.testing.checkers.openai_chat import check_openai_chat
from dragoman.testing.checkers.openai_responses import check_openai_responses

__all__ = ["check_anthropic", "check_gemini", "check_ollama", "check_openai_chat", "check_openai_responses"]
