"""Cheap facts about the tree: what is in it, what is pinned, and how light `import dragoman` is."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.sbom import make_sbom

ROOT = Path(__file__).parent.parent
NOT_OURS = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}

# One letter of each stands in brackets, so that this file does not match itself.
REGISTRY_HOST = re.compile(r"python[h]osted|py[p]i\.org|npm[j]s\.|deb[.]debi[a]n")
MACHINE_PATH = re.compile(r"/wor[k]/|/far[m]/|/tm[p]/h|/roo[t]/")

REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
HEAVY = {"aiohttp", "uvicorn", "openai", "anthropic", "google", "ollama", "httpx", "asyncio"}
IMPORT_LIMIT_MS = 100


def list_files() -> list[Path]:
    """What git tracks or would track; without git, as in an unpacked archive, whatever is not a cache."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [ROOT / name for name in names if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def run_python(code: str) -> str:
    # without bytecode every import would count the compiler too
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.mark.parametrize("pattern", [REGISTRY_HOST, MACHINE_PATH], ids=["registry host", "machine path"])
def test_no_file_names(pattern: re.Pattern[str]) -> None:
    found = []
    for path in list_files():
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert found == []


def test_every_requirement_input_is_compiled() -> None:
    inputs = (ROOT / "requirements").glob("*.in")
    assert {path.stem for path in REQUIREMENTS} == {path.stem for path in inputs}


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    entries = [entry for entry in re.split(r"\n(?=\S)", path.read_text("utf-8")) if not entry.startswith("#")]
    assert entries
    assert [
        entry for entry in entries if not re.match(r"[\w.\-\[\]]+==[\w.+]+[^\n]* \\\n +--hash=sha256:", entry)
    ] == []


def test_the_runtime_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements" / "runtime.in").read_text("utf-8").splitlines()
    extras = project["optional-dependencies"]
    served = project["dependencies"] + extras["fast"] + extras["mcp"]
    assert [line for line in lines if line and not line.startswith("#")] == served


@pytest.mark.parametrize("command", ["make serve", "make test"])
def test_the_readme_shows(command: str) -> None:
    assert command in (ROOT / "README.md").read_text("utf-8")


def test_import_dragoman_is_quick() -> None:
    """In CPU time, which a busy machine stretches less; and a machine too slow for msgspec alone is no verdict."""
    code = "from time import process_time as now; t = now(); import {}; print((now() - t) * 1000)"
    ours, floor = (min(float(run_python(code.format(name))) for _ in range(7)) for name in ("dragoman", "msgspec"))
    assert ours < max(IMPORT_LIMIT_MS, 2 * floor)


@pytest.mark.parametrize("module", ["dragoman", "dragoman.cli"])
def test_an_import_loads_no_server_and_no_client(module: str) -> None:
    code = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    assert HEAVY & set(run_python(code).split()) == set()


def test_every_public_name_loads() -> None:
    code = "import dragoman; [getattr(dragoman, name) for name in dragoman.__all__]"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_bill_of_materials_has_every_pinned_package() -> None:
    requirements = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
    components = make_sbom(requirements, "1")["components"]
    assert len(components) == sum(line[:1].isalnum() for line in requirements.splitlines())
    assert all(component["hashes"] for component in components)
    assert len({component["purl"] for component in components}) == len(components)
