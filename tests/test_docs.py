"""The docs are true: their code runs, their pages are fresh, and every command and every kind of note has a heading."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from dragoman.cli import COMMANDS, load_command
from dragoman.notes import NoteKind
from tests.recorded import needs_corpus
from tools import docs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
NOT_RUN = re.compile(r"<!-- not run: .+ -->\s*\Z")  # directly before a block, with the reason
QUIET = {"", "json", "ndjson", "toml", "yaml", "text", "http"}  # blocks that show something and do nothing


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    run: bool


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text[: m.start()].count("\n") + 1, m[1], m[2], not NOT_RUN.search(text[: m.start()]))
        for m in BLOCK.finditer(text)
    ]


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_code(page: Path) -> bool:
    return any(block.run and block.language not in QUIET for block in read_blocks(page))


@pytest.mark.parametrize("page", [page for page in PAGES if has_code(page)], ids=name_page)
def test_the_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    """From top to bottom, in one folder."""
    for block in read_blocks(page):
        if not block.run or block.language in QUIET:
            continue
        place = f"{name_page(page)}:{block.line}"
        if block.language == "python":
            run_python(block.text, tmp_path, place)
        elif block.language in ("sh", "bash"):
            run_shell(block.text, tmp_path, place)
        elif block.language == "console":
            check_console(block.text, tmp_path, place)
        else:
            pytest.fail(f"{place}: nobody knows how to run {block.language}: mark it `<!-- not run: why -->`")


def run_python(text: str, folder: Path, place: str) -> None:
    result = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, f"{place}:\n{result.stderr}"


def run_shell(text: str, folder: Path, place: str) -> str:
    """What is ours is run; what sets up a machine is looked up instead."""
    lines = [line for line in text.splitlines() if not check_setup(line, place)]
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
    environment = {"PATH": path, "HOME": str(folder), "NO_COLOR": "1"}
    result = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    assert result.returncode == 0, f"{place}:\n{result.stdout}"
    return result.stdout


def check_setup(line: str, place: str) -> bool:
    """`make x` and `pip install x` are not run: the target, or the extra, must exist."""
    if target := re.match(r"make ([a-z-]+)", line):
        assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), place
        return True
    if extra := re.match(r"pip install '?dragoman(?:\[(\w+)\])?'?", line):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        assert extra[1] is None or extra[1] in project["optional-dependencies"], place
        return True
    return False


def check_console(text: str, folder: Path, place: str) -> None:
    """Each `$ command`, with the output it has."""
    for exchange in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = exchange.partition("\n")
        assert run_shell(command, folder, place).strip() == expected.strip(), place


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text("utf-8"))
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    places = [(page if not name else page.parent / name, at) for name, at in ANCHOR.findall(text) if "://" not in name]
    assert [(to.name, at) for to, at in places if to.suffix == ".md" and at not in list_anchors(to)] == []


@cache
def list_anchors(page: Path) -> set[str]:
    """The names of the headings, as Markdown makes them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_command_has_a_heading() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "cli.md").read_text("utf-8"), re.MULTILINE)
    assert [name for name in COMMANDS if f"dragoman {load_command(name).NAME}" not in headings] == [], "docs/cli.md"


def test_every_kind_of_note_has_a_heading() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "notes.md").read_text("utf-8"), re.MULTILINE)
    assert list(get_args(NoteKind)) == headings[: len(get_args(NoteKind))]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"]
    names = [str(page.relative_to(ROOT / "docs")) for page in pages]
    assert [name for name in names if name != "README.md" and f"({name})" not in index] == []


def test_the_generated_pages_are_fresh() -> None:
    stale = [name_page(path) for path, text in docs.steady_pages().items() if docs.is_stale(path, text)]
    assert stale == [], "run `make docs`"


@needs_corpus
def test_the_page_over_recorded_traffic_is_fresh() -> None:
    root = docs.corpus_root()
    assert root is not None
    assert not docs.is_stale(docs.RECORDED, docs.fresh_recorded_page(root)), "run `make docs`"
