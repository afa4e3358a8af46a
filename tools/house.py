"""Counts what a newcomer has to find their way through: files, lines, and the walk of one request.

python tools/house.py            prints the table
python tools/house.py --walk     prints the files that one streamed Claude Code request passes, in order
"""

import argparse
import ast
import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dragoman"
DIALECT_NAME = re.compile(r'"(openai_chat|openai_responses|anthropic|gemini|ollama)"')
SHORT_LINES, LONG_LINES = 60, 500
LONG_FUNCTION = 40


def source_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "src/dragoman/*.py"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split()]


def count_tree() -> dict[str, int]:
    files = source_files()
    texts = {path: path.read_text() for path in files}
    outside = [text for path, text in texts.items() if SOURCE / "dialects" not in path.parents]
    lines = {path: text.count("\n") for path, text in texts.items()}
    short = [path for path, count in lines.items() if count < SHORT_LINES]
    functions = sorted(length for text in texts.values() for length in function_lengths(text))
    importers = count_importers(texts)
    return {
        "source files": len(files),
        "source lines": sum(lines.values()),
        f"files over {LONG_LINES} lines": sum(1 for count in lines.values() if count > LONG_LINES),
        "functions: median of their lines": functions[len(functions) // 2],
        "functions: 95 of 100 have at most": functions[len(functions) * 95 // 100],
        "functions: the longest": functions[-1],
        f"functions over {LONG_FUNCTION} lines": sum(1 for length in functions if length > LONG_FUNCTION),
        f"files under {SHORT_LINES} lines": len(short),
        "of these, without `__init__.py` files": sum(1 for path in short if path.name != "__init__.py"),
        "of these, with one importer": sum(
            1 for path in short if path.name != "__init__.py" and importers[module_name(path)] == 1
        ),
        "files with one importer": sum(1 for count in importers.values() if count == 1),
        "dialect names as strings outside dialects/": sum(len(DIALECT_NAME.findall(text)) for text in outside),
        "files in passes/": len([path for path in files if path.parent == SOURCE / "passes"]),
        "files in upstream/": len([path for path in files if SOURCE / "upstream" in path.parents]),
        "files directly in gateway/": len([path for path in files if path.parent == SOURCE / "gateway"]),
    }


def function_lengths(text: str) -> list[int]:
    """The lines of each function and method, from `def` to its end."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]


def count_importers(texts: dict[Path, str]) -> dict[str, int]:
    """How many modules import each module; packages' own `__init__` files count as modules."""
    names = {module_name(path): path for path in texts}
    importers: dict[str, set[str]] = {name: set() for name in names}
    for path, text in texts.items():
        for name in imported_names(text) & names.keys():
            importers[name].add(module_name(path))
    return {name: len(modules - {name}) for name, modules in importers.items()}


def imported_names(text: str) -> set[str]:
    """The modules that a file may import. `from a import b` names `a`, and `a.b` if that is a module too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Walk:
    """Records which of our functions run in one thread, in the order they are first called."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str, int], None] = {}

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and not code.co_name.startswith("<"):
            self.functions[code.co_filename, code.co_qualname, code.co_firstlineno] = None

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(str(Path(name).relative_to(SOURCE)) for name, _, _ in self.functions))


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], argument: object) -> None:
    """Calls a function in the thread of a loop, when the loop has nothing else to do, and waits until it has run."""

    async def call() -> None:
        await asyncio.sleep(0.05)
        function(argument)

    asyncio.run_coroutine_threadsafe(call(), loop).result()


def walk_request() -> Walk:
    """A streamed Claude Code request with tools and history, through the Anthropic door to an OpenAI Chat server."""
    sys.path.insert(0, str(ROOT))
    from bench.samples import anthropic_request
    from dragoman.testing import serve
    from tests.gateway.house import CANARY, open_house, upstream
    from tests.gateway.web import post

    walk, body = Walk(), anthropic_request(8, 20, 4)
    with serve("openai_chat", key=CANARY) as provider:
        target = upstream("chat", "openai_chat", provider.base_url, models=("claude-sonnet-5-5",))
        with open_house(target) as house:
            for number in range(3):  # the first two fill caches; the third is what every later request does
                if number == 2:
                    call_in_loop(house.loop.loop, sys.setprofile, walk.profile)
                answer = post(house.url, "/v1/messages?beta=true", body)
                if answer.status != 200 or b"message_stop" not in answer.body:
                    raise SystemExit(f"the request failed: {answer.status} {answer.text[:300]}")
            call_in_loop(house.loop.loop, sys.setprofile, None)
    return walk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--walk", action="store_true", help="print the files of one request, in its order")
    if parser.parse_args().walk:
        print("\n".join(walk_request().files))
        return
    walk = walk_request()
    rows = {
        **count_tree(),
        "files one streamed Claude Code request passes": len(walk.files),
        "functions it passes": len(walk.functions),
    }
    for name, count in rows.items():
        print(f"| {name} | {count:,} |")


if __name__ == "__main__":
    main()
