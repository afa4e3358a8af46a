"""A module imports only from its own rank or a lower one: the ranks as data, and a walk over every import."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "dragoman"
SOURCE = Path(__file__).parent.parent / "src"

# A room is what stands directly under src/dragoman, a module or a folder; "" is the package's own __init__.
RANKS = {
    "jsontypes": 0,
    "failure": 0,
    "errors": 0,
    "notes": 0,
    "note_places": 0,
    "log_line": 0,
    "wire": 0,
    "model": 1,
    "fields": 2,
    "framing": 2,
    "passes": 2,
    "demo": 3,
    "dialects": 3,
    "convert": 4,
    "learner": 4,
    "exchange": 4,
    "upstream": 5,
    "tools": 5,
    "mcp": 5,
    "agent": 6,
    "client": 7,
    "gateway": 7,
    "conformance": 7,
    "testing": 7,
    "cli": 8,
    "__main__": 8,
    "": 8,
}

# Rooms that the rank would allow and the design does not.
CLOSED = {
    "fields": {"framing", "passes"},
    "framing": {"model", "fields", "passes"},
    "passes": {"fields", "framing"},
    "demo": {"dialects"},
    "dialects": {"demo"},
    "upstream": {"tools", "mcp"},
    "tools": {"upstream", "mcp"},
    "mcp": {"upstream"},
    "client": {"gateway", "conformance"},
    "gateway": {"client", "conformance"},
}

# Up to this rank everything is a plain function on values: no clock, no dice, no network, no log.
LAST_PURE_RANK = 4
IMPURE = {"asyncio", "socket", "ssl", "aiohttp", "time", "random", "os", "threading", "logging"}

# The lowest rank that may import a package from outside; what is not listed may not be imported at all.
OUTSIDE = {
    "msgspec": 0,
    "jsonschema_rs": 2,  # by passes/schema_clean, on first use
    "aiohttp": 5,
    "uvicorn": 7,
    "httptools": 5,
    "uvloop": 7,
    "pytest": 7,
    "mcp": 5,
    "mcp_types": 5,
    "httpx2": 5,
    "anyio": 5,
}


@dataclass(frozen=True)
class Import:
    line: int
    module: str
    name: str = ""  # `from module import name`
    level: int = 0  # the dots of a relative import

    @property
    def path(self) -> tuple[str, ...]:
        """Every name said: `from a.b import c` may mean the module `a.b.c` or a value in `a.b`."""
        return tuple(word for word in (*self.module.split("."), self.name) if word)


def read_imports(source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name)
            case ast.ImportFrom():
                for alias in node.names:
                    yield Import(node.lineno, node.module or "", alias.name, node.level)
            case _:
                pass


def find_faults(module: str, source: str) -> list[str]:
    """What `source` does wrong as the module `module`, a dotted name below the package ("" is its __init__)."""
    room = module.split(".")[0]
    if room not in RANKS:
        return [f"{module}: {room} has no rank in tests/test_layers.py"]
    faults = []
    for said in read_imports(source):
        why = judge_import(module, said)
        if why:
            faults.append(f"{module or '__init__'}:{said.line}: {why}")
    return faults


def judge_import(module: str, said: Import) -> str | None:
    if said.level:
        return "relative import"
    top = said.path[0]
    if top == PACKAGE:
        return judge_inside(module, said.path[1:])
    rank = RANKS[module.split(".")[0]]
    if top in IMPURE and rank <= LAST_PURE_RANK:
        return f"rank {rank} imports {top}"
    if top in sys.stdlib_module_names:
        return None
    if top not in OUTSIDE:
        return f"{top} is not a dependency"
    return f"rank {rank} imports {top}" if rank < OUTSIDE[top] else None


def judge_inside(module: str, target: tuple[str, ...]) -> str | None:
    room = module.split(".")[0]
    # `from dragoman import name`: a room when one has that name, else a value of the package's own __init__
    other = target[0] if target and (len(target) > 1 or target[0] in RANKS) else ""
    if other not in RANKS:
        return f"{other} has no rank in tests/test_layers.py"
    if RANKS[other] > RANKS[room]:
        return f"{room} (rank {RANKS[room]}) imports {other or '__init__'} (rank {RANKS[other]})"
    if other in CLOSED.get(room, ()):
        return f"{room} does not import {other}"
    if room == other == "dialects":
        return judge_dialect(module.split(".")[1:], target[1:])
    return None


def judge_dialect(module: list[str], target: tuple[str, ...]) -> str | None:
    """A dialect sees itself and the shared `_` modules, never another one, nor the list of them all."""
    if not module:  # dialects/__init__.py is that list
        return None
    wanted = target[0] if target else "__init__"
    if wanted.startswith("_") and wanted != "__init__":
        return None
    return None if wanted == module[0] else f"{module[0]} imports {wanted} of dialects"


def name_module(path: Path) -> str:
    words = path.relative_to(SOURCE / PACKAGE).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def test_every_module_imports_only_downwards() -> None:
    paths = sorted((SOURCE / PACKAGE).rglob("*.py"))
    assert paths
    assert [fault for path in paths for fault in find_faults(name_module(path), path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("model.request", "from dragoman.dialects import anthropic", "model (rank 1) imports dialects (rank 3)"),
        ("model.request", "import dragoman.fields", "model (rank 1) imports fields (rank 2)"),
        ("convert", "def f():\n    from dragoman.cli import main", "convert (rank 4) imports cli (rank 8)"),
        ("notes", "from dragoman import __version__", "notes (rank 0) imports __init__ (rank 8)"),
        ("notes", "import dragoman", "notes (rank 0) imports __init__ (rank 8)"),
        ("passes.roles", "from dragoman import convert", "passes (rank 2) imports convert (rank 4)"),
        ("framing.sse", "from dragoman.model.events import Event", "framing does not import model"),
        ("tools.call", "from dragoman.upstream import retry", "tools does not import upstream"),
        ("dialects.gemini", "from dragoman.dialects import ollama", "gemini imports ollama of dialects"),
        ("dialects.gemini.reply", "from dragoman.dialects.ollama.words import X", "gemini imports ollama of dialects"),
        ("dialects.gemini.reply", "import dragoman.dialects.ollama", "gemini imports ollama of dialects"),
        ("dialects.gemini.reply", "from dragoman.dialects import DIALECTS", "gemini imports DIALECTS of dialects"),
        ("dialects.gemini.reply", "import dragoman.dialects", "gemini imports __init__ of dialects"),
        ("dialects._base", "from dragoman.dialects import gemini", "_base imports gemini of dialects"),
        ("dialects.gemini.reply", "from . import words", "relative import"),
        ("cli.serve", "from .style import paint", "relative import"),
        ("model", "from ..wire import WireReply", "relative import"),
        ("plumbing.pipes", "", "plumbing has no rank"),
        ("cli.serve", "from dragoman.plumbing import pipes", "plumbing has no rank"),
        ("convert", "import openai", "openai is not a dependency"),
        ("upstream.transport", "import uvicorn", "rank 5 imports uvicorn"),
        *[("convert", f"import {name}", f"rank 4 imports {name}") for name in sorted(IMPURE)],
        ("jsontypes", "import os.path", "rank 0 imports os"),
        ("dialects.gemini.reply", "from time import monotonic", "rank 3 imports time"),
        ("fields", "if TYPE_CHECKING:\n    import json, asyncio", "rank 2 imports asyncio"),
    ],
)
def test_a_fault_is_found(module: str, source: str, why: str) -> None:
    (fault,) = find_faults(module, source)
    assert why in fault


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("notes", "from dragoman.errors import LossError"),
        ("jsontypes", "import msgspec"),
        ("dialects", "from dragoman.dialects import anthropic, ollama"),
        ("dialects.gemini", "from dragoman.dialects._base import Dialect"),
        ("dialects.gemini.reply", "from dragoman.dialects import _base"),
        ("dialects.gemini.reply", "from dragoman.dialects.gemini.words import ROLES"),
        ("convert", "from dragoman.dialects import DIALECTS"),
        ("upstream.transport", "import asyncio, aiohttp, time"),
        ("gateway.server", "import uvicorn"),
        ("cli.serve", "from dragoman import __version__"),
        ("", "from dragoman.convert import convert"),
    ],
)
def test_what_the_design_allows_passes(module: str, source: str) -> None:
    assert find_faults(module, source) == []
