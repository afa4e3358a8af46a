"""Size, import time and time to the first answer of a fresh install, beside LiteLLM's, in one run.

    python bench/first_answer.py            measures and prints
    python bench/first_answer.py --write    also writes docs/first-answer.md

Both are installed into empty environments, dragoman from a wheel of this tree. Then each is asked for one answer of the
same server on this machine, as a new process, in turns. It needs a package index.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import venv
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "first-answer.md"
ROUNDS = 7
ASKS = {
    "dragoman": "import dragoman\n"
    "client = dragoman.Client('openai', api_key='k', base_url='URL')\n"
    "print(client.chat('gpt-4o', 'hi').text)",
    "litellm": "import litellm\n"
    "m = [{'role': 'user', 'content': 'hi'}]\n"
    "print(litellm.completion('openai/gpt-4o', m, api_key='k', api_base='URL').choices[0].message.content)",
}
IMPORTS = {name: f"import {name}" for name in ASKS}
OWN = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}  # of an empty environment


class Provider(BaseHTTPRequestHandler):
    """Answers every chat completion with one word."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}
        data = json.dumps({**body, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def install(home: Path, wanted: str) -> Path:
    venv.create(home, with_pip=True)
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", wanted], check=True, stderr=subprocess.DEVNULL)
    python = home / "bin" / "python"
    subprocess.run([str(python), "-m", "compileall", "-q", str(home / "lib")], stdout=subprocess.DEVNULL)
    return python


def size_mb(python: Path) -> float:
    """Of the packages as pip leaves them, with the files that it compiles."""
    [site] = (python.parent.parent / "lib").glob("python*/site-packages")
    files = (path for path in site.rglob("*") if path.is_file())
    return sum(f.stat().st_size for f in files if f.relative_to(site).parts[0].split("-")[0] not in OWN) / 1e6


def count_packages(python: Path) -> int:
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True, text=True)
    return len([row for row in json.loads(listed.stdout) if row["name"] not in OWN])


def version(python: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version('{name}'))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def cpu_ms(python: Path, code: str, home: Path) -> float:
    """Processor time of a new process. The time on the clock depends on what else the machine does."""
    before = getrusage(RUSAGE_CHILDREN)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    subprocess.run([str(python), "-c", code], env=env, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(folder: Path) -> dict[str, dict[str, Any]]:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    wheel = next(folder.glob("*.whl"))
    pythons = {"dragoman": install(folder / "d", str(wheel)), "litellm": install(folder / "l", "litellm")}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    times: dict[str, dict[str, list[float]]] = {name: {"empty": [], "import": [], "answer": []} for name in pythons}
    for _ in range(ROUNDS):
        for name, python in pythons.items():
            codes = {"empty": "pass", "import": IMPORTS[name], "answer": ASKS[name].replace("URL", url)}
            for what, code in codes.items():
                times[name][what].append(cpu_ms(python, code, folder))
    server.shutdown()
    return {
        name: {
            "version": version(python, name),
            "packages": count_packages(python),
            "megabytes": size_mb(python),
            "import": median(times[name]["import"]) - median(times[name]["empty"]),
            "answer": median(times[name]["answer"]),
        }
        for name, python in pythons.items()
    }


def write_page(found: dict[str, dict[str, Any]]) -> str:
    ours, theirs = found["dragoman"], found["litellm"]
    rows = [
        f"| {title} | {ours[key]:.0f}{unit} | {theirs[key]:.0f}{unit} | {theirs[key] / ours[key]:.1f} |"
        for title, key, unit in (
            ("size of the default install", "megabytes", " MB"),
            ("packages", "packages", ""),
            ("processor time of `import`", "import", " ms"),
            ("processor time of a new process, up to its first answer", "answer", " ms"),
        )
    ]
    versions = f"dragoman {ours['version']}, litellm {theirs['version']}, Python {sys.version.split()[0]}"
    return "\n".join([
        "# The first answer", "", "<!-- Written by `python bench/first_answer.py --write`. -->", "",
        "A fresh install of dragoman and of LiteLLM, measured in one run on one machine. Both were installed into",
        "empty environments. Then both asked the same server on this machine, as new processes, in turns. Each time is",
        f"the median of {ROUNDS}. Ratios carry over to other machines, milliseconds do not.", "",
        "| | dragoman | LiteLLM | times as much |", "|---|---:|---:|---:|", *rows, "",
        f"Measured {datetime.now(UTC).date()} with {versions}. LiteLLM used the prices that it brings",
        "(`LITELLM_LOCAL_MODEL_COST_MAP`), so that it asks no network for them.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = write_page(measure(Path(folder)))
    print(page)
    if args.write:
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
