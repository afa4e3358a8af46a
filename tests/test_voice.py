"""Our pages and messages are plain: no sentence begins with who, whoever, nobody or "what is", and none hides its
subject behind whoever or everybody. Generated tables and transcripts show the words of programs: they are left out."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "dragoman").rglob("*.py"))
NOT_OURS = {"transcripts.md", "cases.md", "mission.md", "provider-rules.md", "references.md", "faults.md"}
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in NOT_OURS),
]
BLOCK = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*(?:[-*#|]|\d+\.)+\s|\|")
OPENING = re.compile(
    r"(?:who(?:ever|m|se)?|nobody|no one|everybody|whatever|what (?:is|was|are|were)|of several)\b(?!.*\?)",
    re.I,
)
ANYWHERE = re.compile(r"\b(?:whoever|whomever|nobody|everybody)\b", re.I)


def find_riddles(text: str) -> list[str]:
    sentences = (" ".join(found.split()).strip("*_ ") for found in SENTENCE.split(BLOCK.sub("`x`", text)))
    return [sentence for sentence in sentences if OPENING.match(sentence) or ANYWHERE.search(sentence)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Whoever connects gets a key.", 1),
        ("It is fine. What is sent does not change.", 1),
        ("| nobody | asks |", 1),
        ("This serves everybody.", 1),
        ("What is lost in a translation?", 0),
        ("```sh\nwhoever\n```\nA key goes to its provider.", 0),
    ],
)
def test_the_guard_finds_riddles_and_only_them(text: str, count: int) -> None:
    assert len(find_riddles(text)) == count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain(page: Path) -> None:
    if page.exists():
        assert find_riddles(page.read_text("utf-8")) == []


def test_the_news_are_plain() -> None:
    news = (ROOT / "CHANGELOG.md").read_text("utf-8").partition("## Unreleased")[2].partition("\n## ")[0]
    assert find_riddles(news) == []


def test_messages_of_the_code_are_plain() -> None:
    """Every text with a space that is no docstring: help, errors, notes, log lines."""
    found = [f"{path.relative_to(ROOT)}: {text}" for path in SOURCES for text in texts(path) if find_riddles(text)]
    assert found == []


def texts(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [node.value for node in constants if isinstance(node.value, str) and " " in node.value]
