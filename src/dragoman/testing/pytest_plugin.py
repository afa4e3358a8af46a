"""A pytest fixture: scripted providers in one line, stopped when the test ends.

# conftest.py
pytest_plugins = ["dragoman.testing.pytest_plugin"]

def test_it_retries(scripted):
    provider = scripted("openai", key="k")
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dragoman.testing.provider import Provider, serve


@pytest.fixture
def scripted() -> Iterator[Callable[..., Provider]]:
    """A function that starts a provider of a kind, as often as a test calls it."""
    with ExitStack() as stack:
        yield lambda kind, **settings: stack.enter_context(serve(kind, **settings))
