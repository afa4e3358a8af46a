"""Recipes are tried in a copy of the source, by checks that run in a process of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import NEVER_S

ROOT = Path(__file__).parents[2]


def copy_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("recipe") / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run_checks(source: Path, checks: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "DRAGOMAN_RECIPE": str(source)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(checks)]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=NEVER_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
