"""A field that is added to a Struct turns the laws red until every dialect carries it or notes it.

The field is added to a copy of the package, and `test_every_field` runs on the copy.
"""

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from hypothesis import Phase, find, settings
from msgspec import Struct, defstruct

from dragoman.dialects import NAMES
from dragoman.model.messages import Text
from tests.laws.derive import Derivation
from tests.laws.strategies import FIELDS, FORMS, TYPES, usual

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
COPIED = ("model", "dialects")  # the rest is linked
FIELD = "    mood: str | None = None\n"
LAST = "    extras: Extras = {}\n"  # the last field of every Struct here
HOLDERS = {
    "request": ("Tool", "Request"),
    "messages": ("Text", "ToolCall", "ToolResult", "Message"),
    "reply": ("Finish", "Usage", "Choice", "Reply"),
    "events": ("ReplyStart",),
}
ASKED = ", ".join(name for name in NAMES if name != "canonical")
ANSWERED = f"{ASKED}, jsonrpc"
LOST = (
    *((name, ASKED, "request") for name in ("Request", "Tool", "Message", "Text", "ToolCall", "ToolResult")),
    *((name, ANSWERED, "reply") for name in ("Reply", "Choice", "Finish", "Usage", "Text", "ToolCall")),
    *((name, ANSWERED, "stream") for name in ("Finish", "Usage", "Text", "ToolCall")),
    *((name, f"canonical, {ANSWERED}", "stream") for name in ("Reply", "Choice")),  # unfold does not know them
    ("ReplyStart", "fold", "fold"),
    ("Usage", "add_usage", "sum"),
)
ADVICE = (
    "(request). Write and read it in src/dragoman/dialects/<name>/request.py, or note there that it is dropped",
    "(fold). Make it a part of the answer in src/dragoman/model/fold.py",
    "or add it to UNSAID in tests/laws/declared.py and say why.",
)

# How a setting of a request is added: a file, a line that is there, and what to put behind it.
LACK = ("_NO_SUCH: tuple[str, ...] = (", '"mood", ')
RECIPE = (
    ("model/request.py", "    seed: int | None = None\n", FIELD),
    ("dialects/openai_chat/request.py", '    ("seed", "seed"),\n', '    ("mood", "mood"),\n'),
    (
        "dialects/openai_chat/request.py",
        '        seed=take_integer_or_none(body, "seed"),\n',
        '        mood=take_text_or_none(body, "mood"),\n',
    ),
    ("dialects/openai_responses/request.py", *LACK),
    ("dialects/anthropic/request.py", *LACK),
    ("dialects/gemini/request.py", *LACK),
    ("dialects/ollama/request.py", *LACK),
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package, with files of its own where a field is added."""
    copy = tmp_path / "dragoman"
    copy.mkdir()
    for child in SOURCE.iterdir():
        if child.name in COPIED:
            copytree(child, copy / child.name, ignore=ignore_patterns("__pycache__"))
        else:
            (copy / child.name).symlink_to(child)
    return copy


def add_behind(path: Path, line: str, more: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(line) == 1, f"{path} has no such line any more: {line}"
    path.write_text(text.replace(line, line + more), "utf-8")


def add_to_structs(package: Path) -> None:
    for module, names in HOLDERS.items():
        path = package / "model" / f"{module}.py"
        text = path.read_text("utf-8")
        for name in names:
            head, body = text.split(f"class {name}(", 1)
            text = f"{head}class {name}({body.replace(LAST, FIELD + LAST, 1)}"
        path.write_text(text, "utf-8")


def try_new_field(package: Path) -> subprocess.CompletedProcess[str]:
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-k", "mood"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/laws/test_every_field.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_field_that_no_dialect_knows_turns_the_laws_red_and_says_what_to_do(package: Path) -> None:
    add_to_structs(package)
    run = try_new_field(package)
    lost = [f"{name}.mood: {who} neither carry it nor note it ({what})" for name, who, what in LOST]
    assert run.returncode == 1, run.stdout + run.stderr
    assert [words for words in (*lost, *ADVICE) if words not in run.stdout] == [], run.stdout


def test_a_new_field_that_every_dialect_carries_or_notes_keeps_the_laws_green(package: Path) -> None:
    for file, line, more in RECIPE:
        add_behind(package / file, line, more)
    run = try_new_field(package)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout


def test_a_new_field_is_drawn_by_its_type() -> None:
    moody = defstruct("Moody", [("mood", str | None, None)], bases=(Text,), frozen=True, kw_only=True)
    soon = settings(max_examples=50, derandomize=True, database=None, phases=[Phase.generate])
    assert find(usual.struct(moody), lambda value: value.mood is not None, settings=soon)


def test_a_type_that_was_never_met_asks_for_a_strategy() -> None:
    moody = defstruct("Moody", [("moods", set[str])])
    with pytest.raises(TypeError, match=r"Moody\.moods: no strategy is known for set\[str\]\. Add the type to TYPES"):
        find(usual.struct(moody), lambda value: True)


def test_a_refinement_of_a_field_that_is_gone_is_an_error() -> None:
    class Empty(Struct):
        pass

    with pytest.raises(TypeError, match="no such field"):
        Derivation(TYPES, {**FIELDS, (Empty, "mood"): TYPES[str]}, FORMS, {})
