"""Options every test run knows."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite the golden files of corpus/ with what comes out now"
    )
