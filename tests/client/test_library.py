"""What a Python developer meets first: signatures, exceptions, retries, embeddings, events, helpful errors."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.client import ClientEvent
from dragoman.errors import DragomanError, UpstreamError
from dragoman.failure import Failure, FailureKind
from dragoman.model.reply import Usage
from dragoman.testing import faults, serve
from tests.client.test_providers import City

CALLS = """
import dragoman
from dataclasses import dataclass
@dataclass
class City:
    name: str
client = dragoman.Client(base_ulr="http://x")
client.chat("m", "hi", temprature=1.0)
reveal_type(client.chat("m", "hi", output=City).parsed)
reveal_type(client.run("m", "hi", output=City).parsed)
reveal_type(client.chat("m", "hi", stream=True))
reveal_type(client.embed("m", "hi"))
"""


def test_a_type_checker_knows_the_arguments_and_the_result(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--follow-imports", "silent"]
    said = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True).stdout
    for words in (
        '"base_ulr"',
        '"temprature"',
        '"program.City"',
        '"dragoman.client.sync_client.Stream"',
        "list[float]",
    ):
        assert words in said.replace("builtins.", ""), said
    assert said.count('Revealed type is "program.City"') == 2


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("unauthenticated", None, dragoman.AuthenticationError),
        ("forbidden", None, dragoman.AuthenticationError),
        ("rate_limited", None, dragoman.RateLimitError),
        ("no_credit", None, dragoman.NoCreditError),
        ("timed_out", None, dragoman.RequestTimeoutError),
        ("too_long", None, dragoman.ContextTooLongError),
        ("refused", None, dragoman.ContentFilterError),
        ("overloaded", "upstream_unreachable", dragoman.ConnectionFailedError),
        ("overloaded", None, dragoman.ServerFailedError),
        ("invalid_request", None, dragoman.BadRequestError),
        ("not_found", None, dragoman.ModelNotFoundError),
    ],
)
def test_each_thing_a_caller_handles_has_a_class(kind: FailureKind, code: str | None, expected: type) -> None:
    error = UpstreamError(Failure(kind=kind, code=code, message="no", retry_after_s=2.5, status=400))
    assert type(error) is expected
    assert isinstance(error, UpstreamError)
    assert (error.retry_after_s, error.status, error.code) == (2.5, 400, code)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # ours
    assert (type(again), again.failure) == (expected, error.failure)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("max_completion_tokens", "use max_output"),
        ("response_format", "use output=TYPE"),
        ("messages", "as the second argument"),
        ("temprature", "did you mean temperature"),
    ],
)
def test_a_name_that_people_know_from_elsewhere_is_explained(option: str, words: str) -> None:
    more: Any = {option: 1}
    with dragoman.Client("demo") as client, pytest.raises(dragoman.DragomanError, match=words):
        client.chat("demo", "hi", **more)


def test_plain_arguments_reach_the_provider() -> None:
    with serve("openai", key="k") as provider:
        with dragoman.Client("openai", api_key="k", base_url=provider.base_url, env={}) as client:
            client.chat("gpt-4o", "say x", top_p=0.5, max_tokens=7, stop="END", seed=3)
        sent = json.loads(provider.requests[-1].body)
    assert (sent["top_p"], sent["seed"], sent["stop"]) == (0.5, 3, ["END"])
    assert 7 in (sent.get("max_completion_tokens"), sent.get("max_tokens"))


def test_retries_are_the_callers_choice_and_events_tell_them() -> None:
    seen: list[ClientEvent] = []
    with serve("openai", key="k") as provider:
        options: Any = {"api_key": "k", "base_url": provider.base_url, "env": {}}
        with dragoman.Client("openai", max_retries=0, on_event=seen.append, **options) as client:
            assert client.chat("gpt-4o", "say x").text == "x"
            provider.next(faults.overloaded(503))
            with pytest.raises(dragoman.ServerFailedError):
                client.chat("gpt-4o", "say x")
        assert len([one for one in provider.requests if one.dialect]) == 2
    assert [event.kind for event in seen] == ["sent", "answered", "sent", "failed"]
    assert seen[1].usage is not None
    assert seen[3].failure is not None


def test_an_answer_is_a_dict_and_its_usage_has_a_total() -> None:
    with dragoman.Client("demo") as client:
        answer = client.chat("demo", "Tell me about 'Oslo' with 7 people", output=City)
        assert answer.parsed.name
        said = answer.to_dict()
    assert said["text"] == answer.text
    assert said["usage"]["total"] == answer.usage.total > 0
    assert Usage(input=1, cache_read=2, output=3, reasoning=4).total == 10


@pytest.mark.parametrize("kind", ["openai", "gemini", "ollama"])
def test_texts_become_vectors(kind: str) -> None:
    with (
        serve(kind, key="k") as provider,
        dragoman.Client(kind, api_key="k", base_url=provider.base_url, env={}) as client,
    ):
        one = client.embed("text-embedding-3-small", "hello")
        two = client.embed("text-embedding-3-small", ["hello", "world"])
    assert len(one) > 1
    assert len(two) == 2


def test_the_demo_model_embeds_too() -> None:
    with dragoman.Client("demo") as client:
        assert len(client.embed("demo", ["a", "b"], size=4)[0]) == 4


def test_a_call_in_the_way_of_other_clients_says_what_to_write() -> None:
    client: Any = dragoman.Client(env={})
    with pytest.raises(DragomanError, match="messages; give the messages as the second argument"):
        client.chat(model="demo", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(DragomanError, match="not NoneType"):
        client.chat("demo")
    with pytest.raises(DragomanError, match=r"frequency_penalty; use options=\{'frequency_penalty': ...\}"):
        client.chat("demo", "hello", frequency_penalty=1)
    with pytest.raises(DragomanError, match="output: expected a type, a JSON Schema or 'json', found 3"):
        client.chat("demo", "hello", output=3)
    with pytest.raises(TypeError, match="missing argument: messages; did you mean it by mesages"):
        client.openai.chat.completions.create(model="demo", mesages=[])


def test_a_key_of_no_provider_is_not_dropped() -> None:
    with pytest.raises(dragoman.ConfigError, match=r"api_key: say whose it is: Client\('openai', api_key=...\)"):
        dragoman.Client(api_key="sk-x", env={})


def test_a_stream_may_be_a_variable() -> None:
    def ask(stream: bool) -> object:  # the type checker has a word for it
        return dragoman.Client(env={}).chat("demo", "hello", stream=stream)

    assert isinstance(ask(stream=False), dragoman.Answer)
    assert not isinstance(ask(stream=True), dragoman.Answer)
