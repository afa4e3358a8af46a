"""The list of dialects. A new one is a folder and a line here."""

from importlib import import_module

from dragoman.dialects._base import Dialect
from dragoman.errors import DragomanError

NAMES = (
    "canonical",
    "openai_chat",
    "openai_responses",
    "anthropic",
    "gemini",
    "ollama",
)
CANONICAL = "canonical"
SPOKEN = tuple(name for name in NAMES if name != CANONICAL)  # used by clients and servers
USUAL = "openai_chat"  # the default: most servers speak it too
CLIENT_ONLY = ("jsonrpc",)  # only clients speak it, so no request is converted to it

_loaded: dict[str, Dialect] = {}


def find_dialect(name: str) -> Dialect:
    """Find a dialect by name. `openai-chat` and `openai_chat` are the same."""
    found = _loaded.get(name)
    if found is not None:
        return found
    plain = name.replace("-", "_").lower()
    if plain not in NAMES and plain not in CLIENT_ONLY:
        raise DragomanError(f"unknown dialect {name!r}: expected one of {', '.join(NAMES)}")
    if plain not in _loaded:  # loaded on first use, to keep `import dragoman` fast
        _loaded[plain] = import_module(f"dragoman.dialects.{plain}").DIALECT
    return _loaded[plain]
