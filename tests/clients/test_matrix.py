"""Every official client and framework through the gateway to five upstream dialects: what passes, or why not.

`make test-clients` plays a fifth of the cells, `make matrix` all of them, and writes docs/sdk-matrix.md.
"""

import os
from pathlib import Path

import pytest

from tests.clients.install import UnavailableError, install
from tests.clients.matrix import CLIENTS, Cell, commands, is_sampled, load_rows, run_matrix
from tests.clients.matrix_page import versions, write_page
from tests.clients.matrix_providers import serve_matrix_providers
from tests.clients.test_programs import WISH
from tests.real.llama import UnavailableError as NoEnvironmentError
from tests.real.llama import find_environment

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "sdk-matrix.md"
WRITE = "DRAGOMAN_MATRIX"  # `make matrix` sets it: all cells, and the page


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    if not os.environ.get(WISH):
        pytest.skip(f"{WISH} is not set: `make test-clients` runs the matrix")
    try:
        packages = install(HERE / "sdks.txt").parent
        python = find_environment(ROOT / "requirements" / "frameworks.txt", "the frameworks")
    except (UnavailableError, NoEnvironmentError) as error:
        pytest.skip(str(error))
    everything = bool(os.environ.get(WRITE))
    with serve_matrix_providers() as stage:
        return run_matrix(stage, commands(stage.house.url, python, packages), None if everything else is_sampled)


def test_every_cell_passes_or_has_its_reason(cells: list[Cell]) -> None:
    rows = load_rows()
    unexplained = [cell for cell in cells if cell.why and not cell.own and not any(row.fits(cell) for row in rows)]
    assert unexplained == []


def test_every_reason_is_still_needed(cells: list[Cell]) -> None:
    if not os.environ.get(WRITE):
        pytest.skip("only `make matrix` plays every cell")
    failed = [cell for cell in cells if cell.why]
    assert [row for row in load_rows() if not any(row.fits(cell) for cell in failed)] == []
    PAGE.write_text(write_page(cells))


def test_the_page_shows_these_clients_and_reasons() -> None:
    page = PAGE.read_text()
    known = versions()
    for name, package in (pair for group in CLIENTS.values() for pair in group.items()):
        assert f"| {name} {known[name, package]} |" in page
    assert [row.why for row in load_rows() if row.why not in page] == []
