"""The scripts of the console know the admin API by types that are made of the gateway's Structs."""

import re

from dragoman.console import all_files
from dragoman.gateway.routes.admin import openapi
from dragoman.gateway.routes.table import all_routes
from tools.console_types import console_types


def scripts() -> str:
    return "\n".join(data.decode() for data, kind in all_files().values() if "javascript" in kind)


def test_the_types_are_those_of_the_structs() -> None:
    assert all_files()["types.js"][0].decode() == console_types(), "stale: run `make docs`"


def test_every_admin_route_is_described() -> None:
    paths = {re.sub(r"\{\w+\}", "X", path) for path in openapi()["paths"]}
    for route in all_routes():
        if route.door.path.startswith("/admin/"):
            assert re.sub(r"\(\?P<\w+>[^)]+\)", "X", route.door.path) in paths, route.door.path


def test_the_console_calls_only_what_is_described() -> None:
    known = [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in openapi()["paths"]]
    called = set(re.findall(r"[\"`](/admin/v1/[^\"`?]*)", scripts()))
    assert len(called) > 15
    for path in called:
        plain = re.sub(r"\$\{(?:[^{}]|\{[^}]*\})*\}", "X", path)
        assert any(one.fullmatch(plain) for one in known), path


def test_fields_that_the_scripts_read_are_in_the_types() -> None:
    row = openapi()["components"]["schemas"]["TrafficRow"]["properties"]
    script = all_files()["traffic.js"][0].decode()
    assert set(re.findall(r"\brow\.(\w+)", script)) <= {*row, "fresh"}
