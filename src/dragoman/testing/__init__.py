"""For your own tests: scripted providers, and strict checkers of request bodies.

    from dragoman.testing import Provider, faults, serve

    with serve("anthropic") as provider: ...          # in a thread of its own
    async with Provider("groq") as provider: ...      # in the running loop

Only the checkers work without aiohttp (the `testing` extra), so everything else is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.testing import faults
    from dragoman.testing.faults import ScriptedFault
    from dragoman.testing.provider import Provider, serve
    from dragoman.testing.sending import Recorded

_HOMES = {"ScriptedFault": "faults", "Provider": "provider", "Recorded": "sending", "serve": "provider"}

__all__ = ["Provider", "Recorded", "ScriptedFault", "faults", "serve"]


def __getattr__(name: str) -> Any:
    if name == "faults":
        return import_module("dragoman.testing.faults")
    if name in _HOMES:
        return getattr(import_module(f"dragoman.testing.{_HOMES[name]}"), name)
    raise AttributeError(name)
