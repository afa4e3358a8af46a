"""A module imports only from its own rank or a lower one: the ranks as data, and a walk over every import."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = "dragoman"
SOURCE = Path(__file__).parent.parent / "src"

# A room is what stands directly under src/dragoman, a module or a folder; "" is the package's own __init__.
RANKS = {
    "jsontypes": 0,
    "failure": 0,
    "errors": 0,
    "read_struct": 0,
    "notes": 0,
    "note_places": 0,
    "note_ranks": 0,
    "log_line": 0,
    "wire": 0,
    "model": 1,
    "json_schema": 1,
    "fields": 2,
    "framing": 2,
    "passes": 2,
    "reasoning_state": 2,
    "answers": 3,
    "demo": 3,
    "dialects": 3,
    "convert": 4,
    "own_body": 4,
    "learner": 4,
    "learner_rules": 4,
    "exchange": 4,
    "way_back": 4,
    "known_turns": 4,
    "child_process": 5,
    "console": 5,
    "network": 5,
    "fetch": 5,
    "accounts": 5,
    "upstream": 5,
    "speech": 5,
    "tools": 5,
    "mcp": 5,
    "agent": 6,
    "valkey": 6,
    "client": 7,
    "gateway": 7,
    "postgres": 7,
    "otel": 7,
    "oidc": 7,
    "conformance": 7,
    "testing": 7,
    "langchain": 8,
    "cli": 8,
    "__main__": 8,
    "": 8,
}

# Rooms that the rank would allow and the design does not.
CLOSED = {
    "fields": {"framing", "passes"},
    "framing": {"model", "fields", "passes"},
    "passes": {"fields", "framing", "reasoning_state"},
    "reasoning_state": {"fields", "framing", "passes"},
    "answers": {"dialects", "demo"},
    "demo": {"dialects"},
    "dialects": {"answers", "demo"},
    "upstream": {"speech", "tools", "mcp"},
    "accounts": {"upstream", "tools", "mcp"},
    "tools": {"upstream", "mcp"},
    "mcp": {"upstream"},
    "client": {"gateway", "conformance"},
    "gateway": {"client", "conformance"},
}

# Up to this rank everything is a plain function on values: no clock, no dice, no network, no log.
LAST_PURE_RANK = 4
IMPURE = {"asyncio", "socket", "ssl", "aiohttp", "time", "random", "os", "threading", "logging"}

# The rooms that each extra of pyproject.toml makes work. "" is the default install, "core" is msgspec alone.
CORE = "core"
EXTRAS = {
    CORE: {room for room, rank in RANKS.items() if rank <= LAST_PURE_RANK}
    | {"tools", "child_process", "network", "fetch", "accounts", "cli", "__main__", ""},
    "": {"upstream", "speech", "agent", "client", "console", "gateway", "conformance"},
    "fast": set(),
    "mcp": {"mcp"},
    "testing": {"testing"},
    "valkey": {"valkey"},
    "postgres": {"postgres"},
    "otel": {"otel"},
    "oidc": {"oidc"},
    "langchain": {"langchain"},
}
# Verification against scripted providers: the one module that needs two extras, and the commands load it when asked.
NEEDS_TESTING_TOO = "conformance.verification"
# What a requirement is imported as, if that is not its name.
IMPORTED_AS = {
    "jsonschema-rs": {"jsonschema_rs"},
    "backports.zstd": set[str](),  # by name, where there is no compression.zstd
    "redis[hiredis]": {"redis"},
    "pyjwt[crypto]": {"jwt"},
    "opentelemetry-sdk": {"opentelemetry"},
    "opentelemetry-exporter-otlp-proto-http": {"opentelemetry"},
    "langchain-core": {"langchain_core"},
    "mcp": {"mcp", "mcp_types", "httpx2", "anyio"},  # with packages that mcp itself needs
}
# Imports on first use, which a smaller install goes without.
ON_FIRST_USE = {
    "gateway.process.server": {"uvloop"},
    "json_schema.clean": {"jsonschema_rs"},
    "json_schema.check": {"jsonschema_rs"},  # for the type checker only
    "client.openai_style": {"openai"},  # for the type checker only
    "testing.pytest_plugin": {"pytest"},  # which loads it
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
    if top in sys.stdlib_module_names or top in ON_FIRST_USE.get(module, ()):
        return None
    without = [extra for extra, rooms in EXTRAS.items() if module.split(".")[0] in rooms and top not in packages(extra)]
    return f"{top} is not in {', '.join(extra or 'the default install' for extra in without)}" if without else None


@cache
def packages(extra: str) -> frozenset[str]:
    """What can be imported once an extra is installed."""
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = project["dependencies"][:1] if extra == CORE else project["dependencies"] + extras.get(extra, [])
    names = [re.split(r"[<>=;]", line)[0] for line in listed]
    return frozenset(word for name in names for word in IMPORTED_AS.get(name, {name}))


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


def test_every_room_belongs_to_an_extra_or_to_the_plain_install() -> None:
    assert set().union(*EXTRAS.values()) == set(RANKS)


def test_an_extra_holds_nothing_that_its_rooms_do_not_import() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(project["optional-dependencies"]) == set(EXTRAS) - {"", CORE} | {"all"}
    used_by: dict[str, set[str]] = {room: set() for room in RANKS}
    for path in (SOURCE / PACKAGE).rglob("*.py"):
        used_by[name_module(path).split(".")[0]] |= {said.path[0] for said in read_imports(path.read_text("utf-8"))}
    assert used_by["gateway"] >= packages("fast") - packages("")
    for extra in ("", "mcp", "testing", "valkey", "postgres", "otel", "oidc"):
        rooms = EXTRAS[extra]
        used = set().union(*(used_by[room] for room in rooms))
        spare = packages(extra) - (packages("") if extra else packages(CORE)) - used - {"jsonschema_rs"}  # core's own
        assert spare == set(), extra


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "default")
def test_an_extra_is_all_that_its_rooms_need(extra: str) -> None:
    """Each of their modules is imported where the packages of other extras are not installed."""
    others = set().union(*map(packages, EXTRAS)) - packages(extra) - {"opentelemetry", "jwt"}  # mcp needs these itself
    if missing := [name for name in packages(extra) if extra and find_spec(name) is None]:
        pytest.skip(f"not installed: {missing[0]}")
    modules = [name_module(path) for path in (SOURCE / PACKAGE).rglob("*.py") if path.stem != "__main__"]
    own = [m for m in modules if m.split(".")[0] in EXTRAS[extra] and m not in (NEEDS_TESTING_TOO, *ON_FIRST_USE)]
    code = (
        "import sys\nfrom importlib import import_module\nfor name in sys.argv[1].split(): sys.modules[name] = None\n"
    )
    code += "for name in sys.argv[2].split(): import_module(name)"
    names = " ".join(f"{PACKAGE}.{module}" if module else PACKAGE for module in own)
    done = subprocess.run([sys.executable, "-c", code, " ".join(others), names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


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
        ("convert", "import openai", "openai is not in core"),
        ("passes.roles", "import jsonschema_rs", "jsonschema_rs is not in core"),
        ("gateway.process.server", "import aiohttp", "aiohttp is not in the default install"),
        ("gateway.process.server", "import uvicorn", "uvicorn is not in the default install"),
        ("demo.model", "import httptools", "httptools is not in core"),
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
        ("upstream.transport", "import asyncio, httptools, time"),
        ("gateway.process.server", "import httptools"),
        ("testing.provider", "from aiohttp import web"),
        ("json_schema.clean", "import jsonschema_rs"),
        ("mcp.stdio", "import anyio"),
        ("cli.serve", "from dragoman import __version__"),
        ("", "from dragoman.convert import convert"),
    ],
)
def test_what_the_design_allows_passes(module: str, source: str) -> None:
    assert find_faults(module, source) == []
