"""The console: a page that shows a gateway's traffic, translations and providers. Plain files, served as they are."""

from functools import cache
from pathlib import Path

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}


@cache
def all_files() -> dict[str, tuple[bytes, str]]:
    """Every file by its name, with its content type."""
    found: dict[str, tuple[bytes, str]] = {}
    for entry in Path(__file__).parent.iterdir():
        kind = TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found
