"""The table over recorded traffic counts what there is, and a broken case is a failure, not a crash."""

import json
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.conformance.pages import recorded_page
from dragoman.conformance.recorded import tally_pairs

ASKED = {"model": "m", "max_tokens": 9, "top_k": 5, "messages": [{"role": "user", "content": "hi"}]}
ANSWERED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "secret words"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    put(tmp_path, "one", {"endpoint": "messages", "status": 200}, request=ASKED, reply=ANSWERED)
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    put(tmp_path, "two", {"endpoint": "messages", "status": 529}, request=ASKED, reply=error)
    put(tmp_path, "three", {"endpoint": "count_tokens", "status": 200}, request=ASKED)
    return tmp_path


def put(root: Path, name: str, meta: object, **bodies: object) -> None:
    folder = root / "cases" / "anthropic" / name
    folder.mkdir(parents=True)
    for file, body in {"meta": meta, **bodies}.items():
        (folder / f"{file}.json").write_text(json.dumps(body), "utf-8")


def test_requests_replies_and_errors_are_counted(corpus: Path) -> None:
    (tally,) = tally_pairs(corpus, ["anthropic"], ["openai_chat"])
    assert (tally.requests, tally.replies, tally.errors, tally.failed) == (2, 1, 1, [])
    assert tally.notes["dropped"] == 2  # top_k, in both
    assert 0.8 < tally.score < 1


def test_the_same_dialect_keeps_everything(corpus: Path) -> None:
    (tally,) = tally_pairs(corpus, ["anthropic"], ["anthropic"])
    assert (tally.notes, tally.score) == ({}, 1.0)


def test_an_unreadable_body_is_a_failure(corpus: Path) -> None:
    put(corpus, "zero", {"endpoint": "messages", "status": 200}, request={"model": "m", "messages": 7})
    (tally,) = tally_pairs(corpus, ["anthropic"], ["openai_chat"])
    assert [failure.split(":")[0] for failure in tally.failed] == ["zero (requests)"]
    assert main(["pairs", str(corpus), "--from", "anthropic", "--to", "openai_chat"]) == 1


def test_the_command_prints_a_row_for_each_pair(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", str(corpus), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 25
    assert rows[0].keys() >= {"from", "to", "cases", "dropped", "failures", "score"}


def test_a_folder_without_cases_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", str(tmp_path)]) == 2
    assert "expected a folder with cases/" in capsys.readouterr().err


def test_no_word_of_the_traffic_reaches_the_page(corpus: Path) -> None:
    page = recorded_page(tally_pairs(corpus), "2026-01-02")
    assert "secret" not in page
    assert "one" not in page.split()
    assert "Counted on 2026-01-02: 20 conversions" in page
