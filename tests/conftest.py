"""Options every test run knows."""

import gc
import os
import re

import pytest
from hypothesis import settings

from tests.examples import examples
from tests.gaps import read_gaps

# The same examples every time: a run that fails here fails everywhere. Look for new ones with HYPOTHESIS=wild.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=examples(100))
settings.register_profile("wild", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "steady"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite the golden files of corpus/ with what comes out now"
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """No addresses in names: two workers must collect the same tests."""
    shown = repr(val)
    return re.sub(r" at 0x[0-9a-f]+", "", shown) if " at 0x" in shown else None


@pytest.fixture
def gaps(request: pytest.FixtureRequest) -> dict[str, str]:
    """The known gaps of the test that asks: name of the case -> reason."""
    return read_gaps().get(request.node.nodeid, {})


def pytest_collection_finish() -> None:
    """What collecting has made stays until the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
