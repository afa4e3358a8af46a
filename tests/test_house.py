"""The house stays one that a newcomer finds their way through: the map is true, and each fact has one place."""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.test_layers import RANKS
from tools.house import SOURCE, count_tree, walk_request

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MOST_DIALECT_NAMES = 100  # as strings in modules outside dialects/: a name there is knowledge in the wrong room


def section(title: str) -> str:
    return CONTRIBUTING.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_a_dialects_name_is_rare_outside_the_dialects() -> None:
    assert count_tree()["dialect names as strings outside dialects/"] < MOST_DIALECT_NAMES


LONGEST_FILE, LONGEST_FUNCTION = 600, 61  # lines


def test_a_file_is_read_in_one_sitting() -> None:
    sizes = {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path: size for path, size in sizes.items() if size > LONGEST_FILE} == {}


def test_a_function_fits_in_a_glance() -> None:
    assert count_tree()["functions: the longest"] <= LONGEST_FUNCTION


# Names that stand in several modules on purpose: all dialects have these two.
SAME_IN_EACH_DIALECT = {"StreamDecoder", "StreamEncoder"}


def names_of_types() -> Counter[str]:
    """How many modules define each class or type alias."""
    found: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = (
                [node.name] if isinstance(node, ast.ClassDef) else [t.id for t in targets if isinstance(t, ast.Name)]
            )
            found.update(name for name in names if name[:1].isupper() and not name.isupper())
    return found


def test_one_name_is_one_concept() -> None:
    twice = {name for name, count in names_of_types().items() if count > 1}
    assert twice == SAME_IN_EACH_DIALECT


# Names that nothing else of ours says, and who calls them.
CALLED_FROM_OUTSIDE = {
    "the standard library": {"_check_value", "http_open", "https_open", "pause_writing", "resume_writing"},
    "LangChain": {"_llm_type", "_identifying_params", "_agenerate", "_astream"},
    "the packages mcp and httpx": {"auth_flow", "get_tokens", "get_client_info", "set_client_info"},
    "a new dialect (tests/recipes/parrot)": {
        *("SseStreamDecoder", "SseStreamEncoder", "write_frame", "add_rest", "encode_each"),
    },
    "programs of users (mission B4)": {"unique_name", "prefixed"},
    "the page of a real server (tests/real)": {"real_page"},
}


def words_of(paths: Iterable[Path]) -> Counter[str]:
    return Counter(word for path in paths for word in re.findall(r"\w+", path.read_text("utf-8")))


def test_nothing_in_the_source_is_used_by_tests_only() -> None:
    """Each function and class is named a second time: in the source, a table, a tool, a bench or a page."""
    sources = list(SOURCE.rglob("*.py"))
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "tools").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    words = words_of([*sources, *pages, *SOURCE.rglob("*.toml"), ROOT / "pyproject.toml"])
    defined = {
        node.name
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    alone = {name for name in defined if words[name] == 1 and not name.startswith("__")}
    assert alone <= set().union(*CALLED_FROM_OUTSIDE.values())


# A reader of these names cannot guess what they hold: a body, a statement, a header?
RIDDLES = {"said", "told", "heard"}


def names_in_functions(path: Path) -> set[str]:
    """The arguments and local variables of all functions of a file."""
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    nodes = [inner for function in functions for inner in ast.walk(function)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_a_variable_says_what_it_holds() -> None:
    found = {str(path.relative_to(SOURCE)): names_in_functions(path) & RIDDLES for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("room", [room for room in RANKS if room not in ("", "__main__")])
def test_the_map_shows_every_room(room: str) -> None:
    name = f"{room}/" if (SOURCE / room).is_dir() else f"{room}.py"
    assert name in section("The map of the house"), f"CONTRIBUTING.md: the map has no {name}"


@pytest.mark.parametrize(
    "room", [path.name for path in (SOURCE / "gateway").iterdir() if (path / "__init__.py").exists()]
)
def test_the_map_shows_the_rooms_of_the_gateway(room: str) -> None:
    assert f"{room}/" in section("The map of the house"), f"CONTRIBUTING.md: the map has no gateway/{room}/"


def test_the_walk_names_files_that_exist() -> None:
    names = re.findall(r"`([\w/]+\.py)`", section("The walk of one request"))
    found = {path.name for path in SOURCE.rglob("*.py")} | {"house.py"}
    missing = [name for name in names if name.rpartition("/")[2] not in found]
    assert len(names) > 15
    assert not missing, f"CONTRIBUTING.md: the walk names {missing}"
    whole = [name for name in names if "/" in name and not (SOURCE / name).exists() and name != "tools/house.py"]
    assert not whole, f"CONTRIBUTING.md: the walk names {whole}"


# Files that the walk names although a usual request does not pass them, and why.
BESIDE_THE_WALK = {
    "upstream/routing.py": "it made the table of models before",
    "retry.py": "it is asked after a failure",
    "gateway/direct_way.py": "a connection must have had a request before",
    "upstream/plain_call.py": "the same",
    "tools/house.py": "it prints the walk",
}


def test_a_request_takes_the_walk() -> None:
    names = set(re.findall(r"`([\w/]+\.py)`", section("The walk of one request"))) - BESIDE_THE_WALK.keys()
    passed = walk_request().files
    missed = {name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in passed)}
    assert not missed, f"CONTRIBUTING.md: a streamed Claude Code request does not pass {missed}"
