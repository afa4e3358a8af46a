"""Writes a bill of materials from the pinned requirements: CycloneDX 1.6, https://cyclonedx.org (read 2026-11-16).

python tools/sbom.py [requirements/runtime.txt]   prints it; `make sbom` keeps it as dist/sbom.json
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.M)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def read_components(requirements: str) -> list[dict[str, Any]]:
    """One component for each pinned package, with the digests of the files that pip may install."""
    starts = list(PINNED.finditer(requirements))
    ends = [found.start() for found in starts[1:]] + [len(requirements)]
    return [_component(found, requirements[found.end() : end]) for found, end in zip(starts, ends, strict=True)]


def _component(found: re.Match[str], rest: str) -> dict[str, Any]:
    name, version = found[1].lower().replace("_", "-"), found[2]
    hashes = [{"alg": "SHA-256", "content": digest} for digest in HASH.findall(rest)]
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes}


def make_sbom(requirements: str, version: str) -> dict[str, Any]:
    """Nothing in it depends on when or where it is made: the same requirements give the same bytes."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "dragoman", "version": version}},
        "components": read_components(requirements),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("requirements", nargs="?", type=Path, default=ROOT / "requirements" / "runtime.txt")
    source = (ROOT / "src" / "dragoman" / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "([^"]+)"', source, re.M)
    found = parser.parse_args().requirements.read_text("utf-8")
    print(json.dumps(make_sbom(found, version[1] if version else "0"), indent=2))


if __name__ == "__main__":
    main()
