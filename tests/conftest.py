"""Options every test run knows."""

import re

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite the golden files of corpus/ with what comes out now"
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """No addresses in names: two workers must collect the same tests."""
    shown = repr(val)
    return re.sub(r" at 0x[0-9a-f]+", "", shown) if " at 0x" in shown else None
