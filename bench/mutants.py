"""Planted mistakes: how many of them do the laws and the unit tests notice?

    python bench/mutants.py [--count 200] [--start 0] [--only gemini]

A mutant is one small mistake in an encoder, a decoder or a pass: a condition turned round, a statement or a note left
out, a key misspelled, a number off by one, two rows of a table swapped. The sample is every n-th of all possible ones,
so that two runs try the same; `--start` begins at another one. A mutant that changes no byte and no note of what the
probes write is not counted: probes are recorded bodies, converted to every dialect, and the examples of the laws. Each
of the others should be caught, first by the laws over the same probes, else by the unit tests of its folder and the
golden cases. The words of a note are not compared. The byte snapshot is left out on purpose: it would notice each of
them, and say of none that it is wrong.

Each mutant lives in a forked child, whose functions get the mutated code. It ends in about ten minutes on two cores.
"""

import argparse
import ast
import contextlib
import os
import signal
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
sys.path.insert(0, str(ROOT))

from dragoman.convert import make_legal  # noqa: E402
from dragoman.dialects import find_dialect  # noqa: E402
from dragoman.errors import DragomanError  # noqa: E402
from dragoman.jsontypes import copy_json, dump_json, load_json  # noqa: E402
from dragoman.notes import Notes  # noqa: E402
from dragoman.testing.rules import check  # noqa: E402
from tests.dialects.test_required_keys import TYPES, missing  # noqa: E402
from tests.laws.examples import replies_for, requests_for  # noqa: E402
from tests.laws.round_trip import legal_differences, reply_differences, stream_differences  # noqa: E402
from tests.laws.second.corpus import DIALECTS, TALK, TRIES  # noqa: E402
from tests.laws.second.law import lost_facts  # noqa: E402
from tests.laws.test_second_reader import KNOWN  # noqa: E402
from tests.recorded import Case, cases  # noqa: E402

LEFT_OUT = ("profile.py", "words.py", "__init__.py", "services.py", "failure.py", "note_places.py", "_base.py")
EVERY = 12  # of the recorded cases
LARGEST = 20_000  # bytes of a probe
LIMIT_S = 240  # for one mutant
WORKERS = 2
HANGS = "laws: it hangs"

# ---------------------------------------------------------------- mistakes


class Mutant(NamedTuple):
    file: Path
    number: int  # of the change in the file
    words: str


Change = tuple[str, Callable[[], None]]


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every small mistake that can be made in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp):
            yield (
                f"{node.lineno}: not ({ast.unparse(node.test)})",
                _later(node, "test", ast.UnaryOp(ast.Not(), node.test)),
            )
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield from _left_out(block)
        if isinstance(node, ast.Constant):
            yield from _other_value(node)
        if isinstance(node, ast.Dict) and len(node.values) > 1 and None not in node.keys:
            yield from _swapped(node)


def _later(node: ast.AST, field: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def _left_out(block: list[ast.stmt]) -> Iterator[Change]:
    for i, statement in enumerate(block):
        doc = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        written = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript | ast.Attribute)
        called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if not doc and (written or called or isinstance(statement, ast.AugAssign | ast.Delete)):
            words = ast.unparse(statement).split("\n")[0]
            yield f"{statement.lineno}: without {words}", lambda i=i: block.__setitem__(i, ast.Pass())  # type: ignore[misc]


def _other_value(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if type(value) is int:
        yield f"{node.lineno}: {value + 1} for {value}", _later(node, "value", value + 1)
    elif type(value) is bool:
        yield f"{node.lineno}: {not value} for {value}", _later(node, "value", not value)
    elif type(value) is str and value.isidentifier() and value not in SPARED:
        yield f"{node.lineno}: {value}_x for {value}", _later(node, "value", value + "_x")


SPARED = {"utf", "ascii", "dialects"}


def _swapped(node: ast.Dict) -> Iterator[Change]:
    def swap() -> None:
        node.values[0], node.values[1] = node.values[1], node.values[0]

    if ast.dump(node.values[0]) != ast.dump(node.values[1]):
        yield f"{node.lineno}: two values swapped", swap


def all_mutants() -> list[Mutant]:
    files = [*sorted((SOURCE / "dialects").rglob("*.py")), *sorted((SOURCE / "passes").glob("*.py"))]
    kept = [f for f in files if f.name not in LEFT_OUT and f.parent.name not in ("jsonrpc", "canonical")]
    return [
        Mutant(file, number, words)
        for file in kept
        for number, (words, _) in enumerate(changes(ast.parse(file.read_text("utf-8"))))
    ]


# ---------------------------------------------------------------- the mutated code in the place of the other


def plant(mutant: Mutant) -> None:
    """Functions get other code, values are put in the place of those that were there, wherever these are known."""
    name = ".".join(("dragoman", *mutant.file.relative_to(SOURCE).with_suffix("").parts))
    module = import_module(name)
    tree = ast.parse(mutant.file.read_text("utf-8"))
    list(changes(tree))[mutant.number][1]()
    ast.fix_missing_locations(tree)
    fresh = types.ModuleType(name)
    fresh.__dict__.update({"__file__": module.__file__, "__package__": module.__package__})
    sys.modules[name] = fresh  # for decorators that look their module up
    try:
        exec(compile(tree, str(mutant.file), "exec"), fresh.__dict__)  # noqa: S102
    finally:
        sys.modules[name] = module
    for key, new in list(vars(fresh).items()):
        old = vars(module).get(key)
        if key.startswith("__") or old is None:
            continue
        if isinstance(old, type) and isinstance(new, type) and old.__module__ == name:
            for inner, made in vars(new).items():
                _put_code(vars(old).get(inner), made)
        elif not _put_code(old, new) and not isinstance(new, type | types.ModuleType) and _differs(old, new):
            _put_value(old, new)


def _put_code(old: Any, new: Any) -> bool:
    old, new = (getattr(one, "__wrapped__", one) for one in (old, new))
    old, new = (one.fget if isinstance(one, property) else getattr(one, "__func__", one) for one in (old, new))
    if not isinstance(old, types.FunctionType) or not isinstance(new, types.FunctionType):
        return False
    if len(old.__code__.co_freevars) == len(new.__code__.co_freevars):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    return True


def _differs(old: Any, new: Any) -> bool:
    try:
        return bool(old != new)
    except Exception:
        return False


def _put_value(old: Any, new: Any) -> None:
    if isinstance(old, dict):
        old.clear()
        old.update(new)
        return
    for module in [m for name, m in sys.modules.items() if name.startswith("dragoman")]:
        for key, value in list(vars(module).items()):
            if value is old:
                setattr(module, key, new)


# ---------------------------------------------------------------- what is tried


class Probe(NamedTuple):
    what: str
    case: Case
    source: str
    to: str


def find_probes(dialect: str | None) -> list[Probe]:
    """Those that a file concerns: a dialect's its own, a pass' the requests of all."""
    found = []
    for source in DIALECTS:
        talks = [case for case in cases(source) if case.meta["endpoint"] in TALK and _size(case) < LARGEST]
        for case in [case for case in talks if case.name not in KNOWN][::EVERY]:
            for to in DIALECTS:
                if dialect is None:
                    found.append(Probe("request", case, source, to))
                elif dialect in (source, to):
                    found += [Probe(what, case, source, to) for what in TRIES]
    return found


def _size(case: Case) -> int:
    return sum(file.stat().st_size for file in case.path.iterdir() if file.name != "meta.json")


def try_probe(probe: Probe) -> tuple[bytes, Any]:
    """What is written, notes included, and all that is known of it. An exception of ours is a way to answer."""
    try:
        tried = TRIES[probe.what](probe.case, probe.source, probe.to)
    except DragomanError as error:
        return f"refused: {type(error).__name__}".encode(), None
    if tried is None:
        return b"", None
    body, made, notes = tried
    return dump_json([made, [(note.kind, note.where) for note in notes]]), (body, made, notes)


def written(probes: list[Probe]) -> list[bytes]:
    return [try_probe(probe)[0] for probe in probes] + [dump_json(one) for one in _examples()]


def _examples() -> Iterator[Any]:
    for name in DIALECTS:
        there = find_dialect(name)
        for request in requests_for(name):
            notes = Notes()
            yield there.encode_request(make_legal(request, there, notes), notes).body
            yield [(note.kind, note.canonical) for note in notes]
        for reply in replies_for(name):
            yield there.encode_reply(reply, Notes()).body


def broken_law(probes: list[Probe]) -> str:
    """The first law that a mutant breaks, in words."""
    for name in DIALECTS:
        there = find_dialect(name)
        for request in requests_for(name):
            if legal_differences(make_legal(request, there, Notes()), there):
                return f"an example of {name} comes back changed"
        for reply in replies_for(name):
            if reply_differences(reply, there) or stream_differences(reply, there):
                return f"an answer of {name} comes back changed"
    for probe in probes:
        made = try_probe(probe)[1]
        if made is not None:
            what: Any = "request" if probe.what == "request" else "reply"
            lost = lost_facts(probe.source, probe.to, what, *made)
            if lost:
                return f"second reader: {lost[0]}"
            if probe.source == probe.to and (why := _comes_back_changed(probe, made)):
                return f"{probe.case.name} {why}"
            if illegal := [
                words for words in complain(probe, made) if words not in KNOWN_ILLEGAL.get(name_of(probe), ())
            ]:
                return f"not legal at {probe.to}: {illegal[0]}"
    return ""


def _comes_back_changed(probe: Probe, made: Any) -> str:
    """A body that one dialect reads and writes stays as it was, without a note (tests/laws/test_unnoted_values.py)."""
    body, written_body, notes = made
    if probe.what != "stream" and not _comes_back(probe):
        return "does not come back"
    noisy = len(list(notes)) and (probe.what != "request" or written_body == body)
    return "comes back with a note" if noisy else ""


KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
KNOWN_ILLEGAL: dict[tuple[str, ...], list[str]] = {}  # what is wrong with what we write for it without a mutant


def name_of(probe: Probe) -> tuple[str, ...]:
    return (probe.what, probe.case.name, probe.source, probe.to)


def complain(probe: Probe, made: Any) -> list[str]:
    """What the strict checker of the target's own server, or the types of its official package, object to."""
    body, written_body, _ = made
    if probe.what == "request":
        kind = KINDS.get(probe.to, probe.to)
        return [one.message for one in check(kind, probe.to, written_body, str(body.get("model", "")))]
    return missing(TYPES[probe.to][0], written_body) if probe.what == "reply" else []


def _comes_back(probe: Probe) -> bool:
    there = find_dialect(probe.source)
    wire: Any = probe.case.request() if probe.what == "request" else probe.case.reply()
    before = copy_json(wire.body)
    decode, encode = getattr(there, f"decode_{probe.what}"), getattr(there, f"encode_{probe.what}")
    return bool(load_json(dump_json(encode(decode(wire, Notes()), Notes()).body)) == before)


def unit_tests(file: Path) -> list[str]:
    """The tests of its folder, those of all dialects, and the golden cases."""
    if file.parent.name == "passes":
        return [str(ROOT / "tests" / name) for name in ("passes", "test_golden.py")]
    own = ROOT / "tests" / "dialects" / file.parent.name
    shared = sorted((ROOT / "tests" / "dialects").glob("test_*.py"))
    first = [own] if own.is_dir() else [ROOT / "tests" / "dialects"]
    return [str(path) for path in (*first, *shared, ROOT / "tests" / "test_golden.py")]


# ---------------------------------------------------------------- one mutant in a child of its own


def judge(mutant: Mutant, probes: list[Probe], baseline: list[bytes]) -> str:
    try:
        plant(mutant)
    except Exception:
        return "laws: it does not load"
    try:
        if written(probes) == baseline:
            return "same"
        broken = broken_law(probes)
    except Exception as error:
        return f"laws: {type(error).__name__}"
    return f"laws: {broken}" if broken else "left"


def judge_by_tests(red: dict[Path, list[str]], mutant: Mutant) -> str:
    plant(mutant)
    return "unit tests" if run_tests(mutant.file, red[mutant.file], most=1) else "SURVIVED"


def run_tests(file: Path, besides: Sequence[str], most: int) -> list[str]:
    """At most so many unit tests that fail. `besides`: those that fail without a mutant, of which none counts."""
    failed: list[str] = []
    fixed = ["--hypothesis-seed=0"]  # two runs try the same
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", "--no-header", *fixed]
    pytest.main(
        [*options, f"--maxfail={most}", *unit_tests(file), *(f"--deselect={test}" for test in besides)],
        plugins=[_Log(failed)],
    )
    return failed


def find_red(file: Path) -> str:
    """The unit tests of a file that fail without a mutant, one in a line, after a line of its own."""
    return "\n".join(["red", *run_tests(file, (), most=50)])


class _Log:
    def __init__(self, failed: list[str]) -> None:
        self._failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)


def in_child(work: Callable[[], str]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            try:
                answer = work()
            except BaseException as error:  # the child must not go on as a second parent
                answer = f"the bench failed: {error}"
        os.write(write, answer.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer or HANGS


def in_workers(mutants: list[Mutant], judge_one: Callable[[Mutant], str]) -> list[tuple[Mutant, str]]:
    """Each mutant with its judgement. Workers are processes: a fork out of a thread may wait for a lock for ever."""
    found: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(number)) for number in range(WORKERS)]
        workers = [_start_worker(mutants[number::WORKERS], judge_one, log) for number, log in enumerate(logs)]
        for worker in workers:
            os.waitpid(worker, 0)
        for number, log in enumerate(logs):
            found += zip(mutants[number::WORKERS], log.read_text("utf-8").split("\n"), strict=False)
    return found


def _start_worker(mutants: list[Mutant], judge_one: Callable[[Mutant], str], log: Path) -> int:
    worker = os.fork()
    if worker:
        return worker
    with log.open("w", buffering=1, encoding="utf-8") as lines:
        for mutant in mutants:
            answer = in_child(partial(judge_one, mutant)).replace("\n", " ")
            lines.write(f"{answer}\n")
            sys.stdout.write(f"{answer[:80]:80} {mutant.file.relative_to(SOURCE)} {mutant.words[:70]!r}\n")
            sys.stdout.flush()
    os._exit(0)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--start", type=int, default=0)
    options.add_argument("--only", default="", help="a part of a path")
    args = options.parse_args()
    mutants = [m for m in all_mutants() if args.only in str(m.file)]
    chosen = mutants[args.start :: max(1, len(mutants) // args.count)]
    probes = {name: find_probes(name) for name in (*DIALECTS, None)}
    baselines = {name: written(found) for name, found in probes.items()}
    for probe in (probe for found in probes.values() for probe in found):
        made = try_probe(probe)[1]
        if made is not None and (wrong := complain(probe, made)):
            KNOWN_ILLEGAL[name_of(probe)] = wrong
    for name, found in probes.items():
        assert not broken_law(found), f"{name}: a law is broken without a mutant"

    def judge_one(mutant: Mutant) -> str:
        name = mutant.file.parent.name if mutant.file.parent.name in DIALECTS else None
        return judge(mutant, probes[name], baselines[name])

    judged = in_workers(chosen, judge_one)
    left = [mutant for mutant, answer in judged if answer == "left"]
    red = {file: in_child(partial(find_red, file)).split("\n")[1:] for file in {mutant.file for mutant in left}}
    judged = [pair for pair in judged if pair[1] != "left"] + in_workers(left, partial(judge_by_tests, red))
    report(len(mutants), judged)
    return 0


def report(possible: int, judged: list[tuple[Mutant, str]]) -> None:
    count = Counter(answer.partition(":")[0] for _, answer in judged)
    changed = len(judged) - count["same"]
    caught = count["laws"] + count["unit tests"]
    for mutant, answer in judged:
        if answer.partition(":")[0] not in ("same", "laws", "unit tests"):
            sys.stdout.write(f"{answer[:80]} {mutant.file.relative_to(SOURCE)} {mutant.words!r}\n")
    sys.stdout.write(
        f"{possible} possible, {len(judged)} tried, {changed} change a byte or a note: {caught} caught "
        f"({100 * caught / max(1, changed):.1f} %), {count['laws']} by the laws, {count['unit tests']} by unit tests\n"
    )


if __name__ == "__main__":
    sys.exit(main())
