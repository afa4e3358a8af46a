"""Switches for the fast paths of dragoman. The code itself does not pay for them.

A fast path is an `if` that deals with the usual case in few steps. The code behind it is right for every case. The line
of such an `if` ends in

    # fast path: NAME

and `without(NAME)` compiles it as an `if` that is never true. On a line such as `found = known.get(key)` the mark means
that something was remembered; without it nothing is found. A function with a mark decides for a fast path: it stays as
it is, but mutants are made of it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import dragoman

ROOT = Path(dragoman.__file__).parent
MARK = re.compile(r"# fast path: (.+)")
Statement: TypeAlias = ast.If | ast.FunctionDef | ast.Assign


class Mark(NamedTuple):
    """A fast path in the code."""

    name: str
    file: Path
    line: int


# These give the same in other bytes; they have a test of their own.
IN_OTHER_BYTES = frozenset({"own bytes"})


@cache
def find_marks() -> tuple[Mark, ...]:
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if match := MARK.search(line):
                found.append(Mark(match[1], file, number))
    return tuple(found)


def names() -> frozenset[str]:
    return frozenset(mark.name for mark in find_marks())


@contextmanager
def without(*wanted: str) -> Iterator[None]:
    """The code without these fast paths; if none is named, without any."""
    with _swapped(_compile_without(wanted)):
        yield


@cache
def _compile_without(wanted: tuple[str, ...]) -> dict[Path, dict[str, CodeType]]:
    lines: dict[Path, list[int]] = {}
    for mark in find_marks():
        if mark.name in (wanted or names() - IN_OTHER_BYTES):
            lines.setdefault(mark.file, []).append(mark.line)
    return {file: _compile(file, _switched_off(file, numbers)) for file, numbers in lines.items()}


def _switched_off(file: Path, lines: list[int]) -> ast.Module:
    tree = ast.parse(file.read_text("utf-8"))
    for node in [find_statement(tree, line) for line in lines]:
        if isinstance(node, ast.If):  # the condition stays, so that the names in it mean what they meant
            node.test = ast.BoolOp(op=ast.And(), values=[ast.Constant(False), node.test])
        elif isinstance(node, ast.Assign):
            node.value = ast.Constant(None)
    return tree


class Mutant(NamedTuple):
    """A fast path that takes too much: one of its conditions is gone."""

    mark: Mark
    number: int  # of the condition
    words: str


def find_mutants(name: str) -> list[Mutant]:
    """One for each condition of a fast path."""
    found = []
    for mark in find_marks():
        if mark.name == name:
            tree = ast.parse(mark.file.read_text("utf-8"))
            changes = _changes(find_statement(tree, mark.line))
            found += [Mutant(mark, number, words) for number, (words, _) in enumerate(changes)]
    return found


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """The code with a mutant in it."""
    file = mutant.mark.file
    tree = ast.parse(file.read_text("utf-8"))
    _, change = list(_changes(find_statement(tree, mutant.mark.line)))[mutant.number]
    change()
    with _swapped({file: _compile(file, tree)}):
        yield


Change: TypeAlias = tuple[str, Callable[[], None]]


def _changes(node: Statement) -> Iterator[Change]:
    if isinstance(node, ast.If):
        yield from _weaken(node, ast.And, always=True)
    if isinstance(node, ast.If | ast.FunctionDef):
        for inner in node.body:
            yield from _inner_changes(inner)
    elif isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(".get"):
        memory = ast.unparse(node.value.func).removesuffix(".get")
        first = ast.parse(f"next(iter({memory}.values()), None)", mode="eval").body
        yield "the key", partial(setattr, node, "value", first)


def _inner_changes(node: ast.AST) -> Iterator[Change]:
    """An `if` that returns None, True or False gives up: now it does not. Any other `if` that returns asks for less."""
    for inner in ast.walk(node):
        if not isinstance(inner, ast.If) or not isinstance(inner.body[0], ast.Return):
            continue
        gives_up = isinstance(inner.body[0].value, ast.Constant | None)
        yield from _weaken(inner, ast.Or, always=False) if gives_up else _weaken(inner, ast.And, always=True)


def _weaken(node: ast.If, kind: type[ast.boolop], *, always: bool) -> Iterator[Change]:
    test = node.test
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, kind):
        yield ast.unparse(test), partial(setattr, node, "test", ast.Constant(always))
        return
    for i, value in enumerate(test.values):
        rest = test.values[:i] + test.values[i + 1 :]
        less = rest[0] if len(rest) == 1 else ast.BoolOp(op=test.op, values=rest)
        yield ast.unparse(value), partial(setattr, node, "test", less)


def find_statement(tree: ast.Module, line: int) -> Statement:
    """The `if` or the function whose head ends on a line, or the assignment on it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.FunctionDef) and node.lineno <= line < node.body[0].lineno:
            return node
        if isinstance(node, ast.Assign) and node.lineno == line:
            return node
    raise AssertionError(f"no `if`, no function and no assignment in line {line}")


# ---------------------------------------------------------------- other code in the same functions


@contextmanager
def _swapped(compiled: dict[Path, dict[str, CodeType]]) -> Iterator[None]:
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for file, codes in compiled.items():
            module = import_module(_module_name(file))
            for function in _functions(module, str(file)):
                code = codes[function.__code__.co_qualname]
                if code != function.__code__:
                    before.append((function, function.__code__))
                    function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def _module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _compile(file: Path, tree: ast.Module) -> dict[str, CodeType]:
    """Every function of an edited file by its qualified name."""
    found: dict[str, CodeType] = {}
    waiting: list[CodeType] = [compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        found[code.co_qualname] = code
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


def _functions(module: ModuleType, file: str) -> Iterator[FunctionType]:
    for value in [*vars(module).values()]:
        inner = vars(value).values() if isinstance(value, type) and value.__module__ == module.__name__ else ()
        for one in (value, *inner):
            function = _plain(one)
            if isinstance(function, FunctionType) and function.__code__.co_filename == file:
                yield function


def _plain(value: Any) -> Any:
    """The function itself, of a property, a static method or a remembered function."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    return getattr(value, "__wrapped__", value)
