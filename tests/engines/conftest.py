"""Engines are started once for a file of tests. Where they cannot be installed, the tests skip and say why."""

from collections.abc import Iterator

import pytest

from tests.engines.servers import Engine, postgres_server, valkey_server
from tests.real.llama import UnavailableError


@pytest.fixture(scope="module")
def valkey() -> Iterator[Engine]:
    pytest.importorskip("redis", reason="the extra `valkey` is not installed")
    try:
        with valkey_server() as engine:
            yield engine
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def postgres() -> Iterator[Engine]:
    pytest.importorskip("asyncpg", reason="the extra `postgres` is not installed")
    try:
        with postgres_server() as engine:
            yield engine
    except UnavailableError as error:
        pytest.skip(str(error))
