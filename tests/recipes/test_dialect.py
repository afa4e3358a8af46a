"""The recipe "A dialect" of CONTRIBUTING.md, followed to the letter: a folder, and one line in dialects/__init__.py."""

import shutil
from pathlib import Path

import pytest

from tests.recipes.copies import copy_source, run_checks
from tests.test_layers import find_faults

TEMPLATE = Path(__file__).parent / "parrot"
CHECKS = Path(__file__).parent / "parrot_checks.py"
MOST_LINES = 300


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the dialect in it."""
    copy = copy_source(tmp_path_factory)
    dialects = copy / "dragoman" / "dialects"
    shutil.copytree(TEMPLATE, dialects / "parrot", ignore=shutil.ignore_patterns("__pycache__"))
    listed = dialects / "__init__.py"
    before = listed.read_text("utf-8")
    listed.write_text(before.replace('    "ollama",\n', '    "ollama",\n    "parrot",\n'), "utf-8")
    assert len(listed.read_text("utf-8").splitlines()) == len(before.splitlines()) + 1
    return copy


def test_the_template_is_short_and_keeps_to_its_layer() -> None:
    texts = {path.stem: path.read_text("utf-8") for path in TEMPLATE.glob("*.py")}
    assert sum(len(text.splitlines()) for text in texts.values()) < MOST_LINES
    assert [fault for name, text in texts.items() for fault in find_faults(f"dialects.parrot.{name}", text)] == []


def test_a_folder_and_one_line_are_a_dialect(source: Path) -> None:
    run_checks(source, CHECKS)
