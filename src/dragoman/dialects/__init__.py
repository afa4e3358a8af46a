"""The dialects there are. A new one is a folder and a line here."""

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
SPOKEN = tuple(name for name in NAMES if name != CANONICAL)  # by clients and providers
USUAL = "openai_chat"  # most servers speak it too; taken where no dialect is named
CLIENT_ONLY = ("jsonrpc",)  # clients speak it, no provider does: no request is converted to it

_loaded: dict[str, Dialect] = {}


def find_dialect(name: str) -> Dialect:
    """A dialect by name; `openai-chat` is as good as `openai_chat`."""
    found = _loaded.get(name)
    if found is not None:
        return found
    plain = name.replace("-", "_").lower()
    if plain not in NAMES and plain not in CLIENT_ONLY:
        raise DragomanError(f"unknown dialect {name!r}: expected one of {', '.join(NAMES)}")
    if plain not in _loaded:  # loaded on first use: `import dragoman` stays quick
        _loaded[plain] = import_module(f"dragoman.dialects.{plain}").DIALECT
    return _loaded[plain]
