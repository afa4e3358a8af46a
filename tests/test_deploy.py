"""The files of deploy/: what a linter would ask of them, and that they name only what there is."""

import json
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dragoman.gateway.config.load import read_settings
from dragoman.gateway.routes.table import OWN
from tests.real.llama import UnavailableError, find_environment
from tests.waiting import NEVER_S

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


def read_pins(file: str) -> set[str]:
    text = (ROOT / "requirements" / file).read_text("utf-8")
    return {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def missing_pins(pins: set[str]) -> list[str]:
    """What packages of this environment need that is not pinned beside them."""
    missing = []
    for wanted in sorted(pins):
        try:
            needs = [Requirement(text) for text in metadata.requires(wanted) or ()]
        except metadata.PackageNotFoundError:
            continue  # for another system, or another environment
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                missing += [f"{wanted} needs {need}"] if need.name.lower().replace("_", "-") not in pins else []
    return missing


@pytest.mark.parametrize("file", ["runtime.txt", "build.txt", "dev.txt", "deploy.txt"])
def test_a_pinned_file_is_complete(file: str) -> None:
    """It is installed without asking for more: pip refused a pin when a newer version of it came out."""
    pins = read_pins(file)
    assert len(pins) >= 2
    assert missing_pins(pins) == []


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


def find_schemas() -> Path:
    try:
        return find_environment(ROOT / "requirements" / "schemas.txt", "kubernetes-validate")
    except UnavailableError as error:
        pytest.skip(str(error))


def test_the_base_fits_the_schemas_of_kubernetes() -> None:
    python = find_schemas()
    files = [str(path) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if path.stem != "kustomization"]
    command = [str(python.with_name("kubernetes-validate")), "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=NEVER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) == 5


COMPOSE = """
import json, sys, yaml
found = yaml.safe_load(open(sys.argv[1]))
print(json.dumps(found))
"""


def test_the_compose_file_names_only_what_there_is() -> None:
    command = [str(find_schemas()), "-c", COMPOSE, str(DEPLOY / "compose.yaml")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=NEVER_S).stdout)
    services, volumes = found["services"], set(found["volumes"])
    assert {"gateway-1", "gateway-2", "valkey", "postgres", "proxy", "prometheus", "grafana"} <= set(services)
    own = {"./dragoman.toml", "./metrics.key"}  # that a person writes
    for name, service in services.items():
        assert ":" in service["image"] or "build" in service, f"{name}: an image without a version"
        assert set(service.get("depends_on", ())) <= set(services), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in own or source in volumes or (DEPLOY / source).exists(), f"{name}: {source}"
    for name in ("gateway-1", "gateway-2"):
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]


def test_the_unit_of_systemd_hardens_and_gives_time_to_end() -> None:
    lines = (DEPLOY / "dragoman.service").read_text("utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert {said[name] for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "DynamicUser")} == {"yes"}
    assert said["ProtectSystem"] == "strict"
    assert int(said["TimeoutStopSec"]) > 30, "running streams have 30 seconds"
    assert f"Environment=TMPDIR=/run/{said['RuntimeDirectory']}" in lines, "commands find no socket in a private /tmp"


def test_the_dashboard_adds_no_amounts_of_two_currencies() -> None:
    board = json.loads((DEPLOY / "grafana" / "dragoman.json").read_text("utf-8"))
    costs = [target["expr"] for panel in board["panels"] for target in panel["targets"] if "_cost_" in target["expr"]]
    assert len(costs) == 2
    assert all(re.search(r"sum by \([^)]*currency", cost) for cost in costs)
