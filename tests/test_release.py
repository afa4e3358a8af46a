"""A release: a version from the changelog, archives that hold what they must, an empty environment that runs them."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import QUIET, read_blocks
from tests.waiting import NEVER_S
from tools.release import bump, make_provenance

ROOT = Path(__file__).parent.parent
BOUND = 40_000_000  # bytes of the default install
PROVED_BY_PIP = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}  # a venv's own


@pytest.mark.parametrize(
    ("headings", "version"), [(("Added", "Fixed"), "0.5.0"), (("Fixed", "Security"), "0.4.3"), (("Changed",), "0.5.0")]
)
def test_the_version_follows_from_the_changelog(headings: tuple[str, ...], version: str) -> None:
    log = "# Changelog\n\n## Unreleased\n\n" + "".join(f"### {word}\n\n- x\n\n" for word in headings) + "## 0.4.2\n"
    source, changelog = bump('__version__ = "0.4.2"\n', log, "2026-11-16")
    assert source == f'__version__ = "{version}"\n'
    assert f"## Unreleased\n\n## {version} - 2026-11-16\n" in changelog
    assert changelog.endswith("## 0.4.2\n")


def test_a_changelog_without_changes_makes_no_release() -> None:
    with pytest.raises(SystemExit, match="nothing under Unreleased"):
        bump('__version__ = "0.4.2"\n', "## Unreleased\n\n## 0.4.2\n### Fixed\n", "2026-11-16")


def test_provenance_has_the_digest_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"abc")
    subject = make_provenance([tmp_path / "a.whl"], "c0ffee")["subject"]
    assert subject[0]["name"] == "a.whl"
    assert subject[0]["digest"]["sha256"].startswith("ba7816bf8f01cfea")


@cache
def built(folder: Path) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the package cannot be built here: {done.stderr.strip().splitlines()[-1]}")
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("dist"))


def test_the_sdist_has_all_that_its_tests_need(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as file:
        tops = {name.split("/")[1] for name in file.getnames()}
    assert {"src", "tests", "bench", "tools", "corpus", "docs", "requirements", "Makefile", "README.md"} <= tops


def test_the_wheel_has_the_package_and_its_data(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as file:
        names = set(file.namelist())
    assert {"dragoman/py.typed", "dragoman/upstream/profiles.toml"} <= names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


def make_empty(folder: Path, archive: Path) -> Path:
    """An environment with this archive and what it asks for, and nothing else."""
    if os.environ.get("DRAGOMAN_REAL") != "1":
        pytest.skip("installs packages into an empty environment: set DRAGOMAN_REAL=1")
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
    done = subprocess.run([*pip, str(archive)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


def size_of(bin_folder: Path) -> int:
    [site] = (bin_folder.parent / "lib").glob("python*/site-packages")
    return sum(
        path.stat().st_size
        for path in site.rglob("*")
        if path.is_file() and path.relative_to(site).parts[0].split("-")[0] not in PROVED_BY_PIP
    )


@pytest.mark.parametrize("kind", [0, 1], ids=["wheel", "sdist"])
def test_an_empty_environment_runs_the_readme(kind: int, archives: tuple[Path, Path], tmp_path: Path) -> None:
    """Its blocks from top to bottom. Blocks that need an extra say its name in one line."""
    here = make_empty(tmp_path / "env", archives[kind])
    assert size_of(here) < BOUND
    for block in read_blocks(ROOT / "README.md"):
        if not block.run or block.language in QUIET:
            continue
        lines = [line for line in block.text.splitlines() if not line.startswith(("make ", "pip "))]
        shell = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
        command = [str(here / "python"), "-c", block.text] if block.language == "python" else shell
        env = {"PATH": f"{here}:/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=NEVER_S)
        assert not done.returncode or "pip install 'dragoman[mcp]'" in done.stderr, f"line {block.line}:\n{done.stderr}"
