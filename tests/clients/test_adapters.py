"""The frameworks of docs/integrations.md: the code of that page runs with the real packages, through a gateway."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.clients.test_programs import WISH
from tests.gateway.house import open_house
from tests.real.llama import UnavailableError, find_environment
from tests.test_docs import Block, read_blocks
from tests.waiting import NEVER_S

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "integrations.md"
MARK = "tests/clients/test_adapters.py runs it"
ADDRESS = "http://127.0.0.1:20006"
# Our own packages come last: those of the frameworks win.
START = "import sys; sys.path.extend(sys.argv[1:])\n"


def marked_blocks() -> list[Block]:
    lines = PAGE.read_text("utf-8").splitlines()
    return [block for block in read_blocks(PAGE) if MARK in lines[block.line - 2]]


@pytest.fixture(scope="module")
def python() -> Path:
    if not os.environ.get(WISH):
        pytest.skip(f"{WISH} is not set: `make test-clients` runs the frameworks")
    try:
        return find_environment(ROOT / "requirements" / "adapters.txt", "the frameworks of docs/integrations.md")
    except UnavailableError as error:
        pytest.skip(str(error))


def test_the_page_has_each_framework() -> None:
    words = ("ChatDragoman", "ChatOpenAI", "from agents", "pydantic_ai", "llama_index", "import instructor")
    text = "\n".join(block.text for block in marked_blocks())
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("block", marked_blocks(), ids=lambda block: block.text.split("\n")[0])
def test_the_code_of_the_page_runs(block: Block, python: Path, tmp_path: Path) -> None:
    with open_house() as house:  # its demo model answers to every name
        code = START + block.text.replace(ADDRESS, house.url)
        paths = [str(ROOT / "src"), sysconfig.get_path("purelib")]
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "*"}
        done = subprocess.run(
            [str(python), "-c", code, *paths],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=NEVER_S,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
