"""Makes a release in dist/: wheel, sdist, bill of materials, provenance. It uploads nothing.

python tools/release.py            builds the version that the source has
python tools/release.py --bump     first gives the changelog's *Unreleased* part a version and a date

Provenance is an in-toto statement, https://slsa.dev/spec/v1.0/provenance (read 2026-11-16).
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dragoman" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
DIST = ROOT / "dist"
VERSION = re.compile(r'^__version__ = "([^"]+)"', re.M)
UNRELEASED = re.compile(r"^## Unreleased\n(.*?)(?=^## |\Z)", re.M | re.S)


def read_version(source: str) -> str:
    found = VERSION.search(source)
    if found is None:
        raise SystemExit("no __version__ in the source")
    return found[1]


def next_version(current: str, changes: str) -> str:
    """Only fixes: the last number grows. Otherwise the middle one, as Semantic Versioning wants before 1.0."""
    major, minor, patch = (int(number) for number in current.split("."))
    headings = set(re.findall(r"^### (\w+)", changes, re.M))
    if not headings:
        raise SystemExit("CHANGELOG.md has nothing under Unreleased")
    if headings <= {"Fixed", "Security"}:
        return f"{major}.{minor}.{patch + 1}"
    return f"{major}.{minor + 1}.0"


def bump(source: str, changelog: str, date: str) -> tuple[str, str]:
    """The source and the changelog of the next version."""
    found = UNRELEASED.search(changelog)
    if found is None:
        raise SystemExit("CHANGELOG.md has no part Unreleased")
    version = next_version(read_version(source), found[1])
    heading = f"## Unreleased\n\n## {version} - {date}\n"
    return VERSION.sub(f'__version__ = "{version}"', source), changelog.replace("## Unreleased\n", heading, 1)


def make_provenance(files: list[Path], commit: str) -> dict[str, Any]:
    """What was built, from which commit, by which command."""
    digests = [{"name": f.name, "digest": {"sha256": hashlib.sha256(f.read_bytes()).hexdigest()}} for f in files]
    build = {
        "buildType": "https://hatch.pypa.io/latest/build",
        "externalParameters": {"command": "python tools/release.py"},
        "resolvedDependencies": [{"name": "dragoman", "digest": {"gitCommit": commit}}],
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": digests,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": build, "runDetails": {"builder": {"id": "tools/release.py"}}},
    }


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def build() -> list[Path]:
    version = read_version(SOURCE.read_text("utf-8"))
    run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST))
    files = sorted(path for path in DIST.iterdir() if path.name.startswith(f"dragoman-{version}"))
    run(sys.executable, "-m", "twine", "check", "--strict", *(str(path) for path in files))
    (DIST / "sbom.json").write_text(run(sys.executable, str(ROOT / "tools" / "sbom.py")))
    commit = run("git", "rev-parse", "HEAD").strip()
    if run("git", "status", "--porcelain"):
        commit += " with changes"
    (DIST / "provenance.json").write_text(json.dumps(make_provenance(files, commit), indent=2) + "\n")
    return [*files, DIST / "sbom.json", DIST / "provenance.json"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bump", action="store_true", help="make the changelog's Unreleased part the next version")
    if parser.parse_args().bump:
        today = datetime.now(UTC).date().isoformat()
        source, changelog = bump(SOURCE.read_text("utf-8"), CHANGELOG.read_text("utf-8"), today)
        SOURCE.write_text(source, "utf-8")
        CHANGELOG.write_text(changelog, "utf-8")
    for path in build():
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
