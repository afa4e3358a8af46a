"""The files of deploy/: what a linter would ask of them, and that they name only what there is."""

import json
import re
import tomllib
from pathlib import Path

from dragoman.gateway.config.load import read_settings
from dragoman.gateway.routes.table import OWN

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def test_the_image_is_pinned_small_and_not_root() -> None:
    lines = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8")).splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    images = [rest.split()[0] for word, rest in words if word == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+", image) for image in images)
    users = [rest for word, rest in words if word == "USER"]
    assert users == ["10001:10001"]
    installs = [part for word, rest in words if word == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert installs
    assert all("--require-hashes" in part or "--no-deps" in part for part in installs)
    assert all("--no-cache-dir" in part for part in installs)
    assert not any(word == "ADD" or "latest" in rest or "curl" in rest for word, rest in words)
    assert [word for word, _ in words][-2:] == ["ENTRYPOINT", "CMD"]
    assert any(word == "HEALTHCHECK" for word, _ in words)
    for word, rest in words:
        if word == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / name).exists() for name in rest.split()[:-1]), rest


def test_probes_ask_for_paths_that_there_are() -> None:
    asked = set()
    for path in (DEPLOY / "Dockerfile", DEPLOY / "kubernetes" / "deployment.yaml"):
        asked |= set(re.findall(r"(?:path: |20006)(/\w+)", path.read_text("utf-8")))
    assert asked == {"/healthz", "/readyz"}
    assert asked <= {door.path for access, door in OWN if access == "public"}


def test_the_example_configurations_are_good() -> None:
    example = (DEPLOY / "dragoman.example.toml").read_text("utf-8")
    assert (DEPLOY / "kubernetes" / "dragoman.toml").read_text("utf-8") == example
    env = dict.fromkeys(re.findall(r"\$\{(\w+)\}", example), "x" * 20)
    assert len(read_settings(tomllib.loads(example), "dragoman.toml", env).upstreams) == 2


def test_the_dashboard_shows_numbers_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana" / "dragoman.json").read_text("utf-8"))
    asked = {
        re.sub(r"_bucket$", "", name)
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bdragoman_\w+", target["expr"])
    }
    gateway = ROOT / "src" / "dragoman" / "gateway"
    said = "".join((gateway / name).read_text("utf-8") for name in ("telemetry/metrics.py", "routes/status.py"))
    assert asked
    assert {name for name in asked if f'"{name}"' not in said} == set()


def test_every_file_of_the_base_is_there() -> None:
    base = DEPLOY / "kubernetes"
    resources = re.search(r"resources: \[(.*)\]", (base / "kustomization.yaml").read_text("utf-8"))
    assert resources is not None
    assert {path.name for path in base.glob("*.yaml")} - {"kustomization.yaml"} == set(resources[1].split(", "))
    for path in base.glob("*.yaml"):
        assert "\t" not in path.read_text("utf-8")
