"""The pair table says what happens: what is known to be carried, adapted and lost comes out so."""

from functools import cache
from itertools import product

import pytest

from dragoman.conformance.pairs import DIALECTS, Row, measure_pairs
from dragoman.conformance.probes import FAILURES, REPLIES, REQUESTS
from dragoman.failure import Failure
from dragoman.model.reply import Reply
from dragoman.model.request import Request


@cache
def rows() -> dict[tuple[str, str], Row]:
    return {(row.what, row.feature): row for row in measure_pairs()}


def outcome(what: str, feature: str, source: str, target: str) -> str:
    return rows()[what, feature].cells[source, target].outcome


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_carries_to_itself_whatever_it_can_say(dialect: str) -> None:
    outcomes = {key: row.cells[dialect, dialect].outcome for key, row in rows().items()}
    assert {key: found for key, found in outcomes.items() if found not in ("carried", "-")} == {}


CORE = (
    ("request", "system"),
    ("request", "text, several turns"),
    ("request", "image"),
    ("request", "tool"),
    ("request", "tool call and result"),
    ("request", "parallel tool calls"),
    ("request", "structured output"),
    *(
        (what, feature)
        for what in ("reply", "stream")
        for feature in ("text", "tool call", "parallel tool calls", "usage")
    ),
    *((what, feature) for what in ("reply", "stream") for feature in ("reasoning", "end: length", "end: tool call")),
    ("error", "error: rate limit"),
    ("error", "error: bad request"),
)


# Features that a dialect does not have at all: {"parrot": ("image", "reasoning")}
LACKED: dict[str, tuple[str, ...]] = {}


@pytest.mark.parametrize(("what", "feature"), CORE)
def test_every_pair_carries(what: str, feature: str) -> None:
    cells = {
        pair: cell
        for pair, cell in rows()[what, feature].cells.items()
        if all(feature not in LACKED.get(dialect, ()) for dialect in pair)
    }
    others = {pair: cell for pair, cell in cells.items() if cell.outcome != "carried"}
    if feature == "tool":  # Ollama's server keeps few keywords of a schema: the rest is told in words
        others = {pair: cell for pair, cell in others.items() if pair[1] != "ollama" or cell.outcome != "adapted"}
    assert others == {}


def test_nothing_is_lost_without_a_reason() -> None:
    silent = [
        (row.what, row.feature, pair)
        for row in rows().values()
        for pair, cell in row.cells.items()
        if cell.outcome == "lost" and not cell.why
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("feature", "source", "target", "expected"),
    [
        ("audio", "openai_chat", "gemini", "carried"),
        ("audio", "openai_chat", "anthropic", "lost"),
        ("error result", "anthropic", "gemini", "carried"),
        ("error result", "anthropic", "openai_chat", "adapted"),
        ("tool result with image", "anthropic", "openai_responses", "carried"),
        ("tool result with image", "anthropic", "openai_chat", "adapted"),
        ("signature in the history", "anthropic", "gemini", "lost"),
        ("tool choice: required", "ollama", "anthropic", "-"),
    ],
)
def test_what_is_known_comes_out_so(feature: str, source: str, target: str, expected: str) -> None:
    assert outcome("request", feature, source, target) == expected


def test_a_stream_that_breaks_is_an_error_everywhere() -> None:
    cells = rows()["stream", "error: overloaded"].cells
    assert {pair: cell.outcome for pair, cell in cells.items() if cell.outcome not in ("carried", "adapted")} == {}


def test_every_pair_is_there() -> None:
    assert all(set(row.cells) == set(product(DIALECTS, DIALECTS)) for row in rows().values())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_probe_finds_its_feature_in_itself(dialect: str) -> None:
    """Reasoning and seals aside, which not every dialect has: a probe that finds nothing would measure nothing."""
    for probe in (*REQUESTS, *REPLIES, *FAILURES):
        value = probe.build(dialect)
        assert isinstance(value, Request | Reply | Failure)
        if "signature" not in probe.feature and "reasoning" not in probe.feature:
            assert probe.look(value) is not None, probe.feature
