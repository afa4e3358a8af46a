"""The recipe "A provider" of CONTRIBUTING.md, followed to the letter: one row in upstream/profiles.toml, no code."""

from pathlib import Path

import pytest

from tests.recipes.copies import copy_source, run_checks

HERE = Path(__file__).parent


def test_one_row_is_a_provider(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = copy_source(tmp_path_factory)
    rows = source / "dragoman" / "upstream" / "profiles.toml"
    rows.write_text(rows.read_text("utf-8") + (HERE / "provider.toml").read_text("utf-8"), "utf-8")
    run_checks(source, HERE / "provider_checks.py")
