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
reveal_type(client.stream("m", "hi", output=City).answer().parsed)
reveal_type(client.chat("m", "hi", output=City, stream=True).answer().parsed)
reveal_type(client.openai.chat.completions.create(model="m", messages=[]).choices[0].message.content)
reveal_type(client.openai.responses.create(model="m", input="hi").output_text)
reveal_type(client.openai.responses.create(model="m", input="hi").notes)
for chunk in client.openai.chat(model="m", messages=[], stream=True):
    reveal_type(chunk.choices[0].delta.role)
client.openai.chat(model="m", messages=[]).choises
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
        '"dragoman.client.sync_client.Stream[Any]"',
        '"str | None"',
        '"tuple[dragoman.notes.Note, ...]"',
        "Literal['assistant']",
        '"ChatAnswer" has no attribute "choises"',
        "list[float]",
    ):
        assert words in said.replace("builtins.", ""), said
    assert said.count('Revealed type is "program.City"') == 4


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": "hot"}, "temperature: expected a number, found 'hot'"),
        ({"max_tokens": "5"}, "max_tokens: expected a whole number, found '5'"),
        ({"max_output": True}, "max_output: expected a whole number, found True"),
        ({"max_output": 3, "max_tokens": 4}, "max_output and max_tokens are the same: give one of them"),
        ({"stop": 5}, "stop: expected a text or a list of texts, found 5"),
        ({"seed": "x"}, "seed: expected a whole number"),
        ({"timeout_s": "5"}, "timeout_s: expected a number"),
        ({"system": ["a"]}, "system: expected text"),
        ({"options": "x"}, "options: expected a dict"),
        ({"effort": -3}, "effort: expected a number of tokens of 0 or more"),
        ({"tools": "get_weather"}, "tools: expected functions, toolboxes or tool objects, found 'get_weather'"),
        ({"tools": [5]}, "tools: expected functions, toolboxes or tool objects, found 5"),
        ({"tools": [{}]}, "tools: a tool has a name or a type"),
        ({"tool_choice": 5}, "tool_choice: expected auto, none, required or a tool's name, found 5"),
        ({"refuse": {"lots"}}, "refuse: expected some of"),
        ({"temprature": 1}, "did you mean temperature"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named_and_nothing_is_sent(arguments: Any, message: str) -> None:
    sent: list[object] = []
    with dragoman.Client(env={}, on_event=sent.append) as client, pytest.raises(dragoman.ArgumentError) as caught:
        client.chat("demo", "hello", **arguments)
    assert message in str(caught.value)
    assert isinstance(caught.value, TypeError)  # as Python's own
    assert not sent


def test_wrong_arguments_of_a_client_and_of_embed_are_named() -> None:
    client: Any = dragoman.Client
    for arguments, message in (
        ({"keys": "sk"}, "keys: expected a dict"),
        ({"max_retries": "2"}, "max_retries: expect"),
    ):
        with pytest.raises(dragoman.ArgumentError, match=message):
            client(**arguments)
    wrong: Any = None
    with (
        dragoman.Client(env={}) as made,
        pytest.raises(dragoman.ArgumentError, match="text: expected a text or a list"),
    ):
        made.embed("demo", wrong)
    with (
        dragoman.Client(env={}) as made,
        pytest.raises(dragoman.ArgumentError, match="model: expected text, found None"),
    ):
        made.chat(wrong, "hello")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("caht", "did you mean chat?"),
        ("messages", "use client.chat(model, messages)"),
        ("completions", "use client.openai.chat.completions"),
        ("responses", "use client.openai.responses"),
    ],
)
@pytest.mark.parametrize("kind", [dragoman.Client, dragoman.AsyncClient])
def test_a_method_of_other_clients_leads_to_ours(kind: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(kind(env={}), name)
    assert message in str(caught.value)


def test_what_openais_endpoints_lack_leads_to_ours() -> None:
    with dragoman.Client(env={}) as client:
        endpoints: list[Any] = [client.openai.chat.completions, client.openai.responses]
        for endpoint in endpoints:
            with pytest.raises(AttributeError, match=r"no parse, only create: use client.chat\(.*output=TYPE\)"):
                endpoint.parse(model="demo")


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("dmeo", dragoman.ModelNotFoundError, "did you mean demo?"),
        ("together_ai/meta-llama/Llama-3", dragoman.AuthenticationError, "set TOGETHER_API_KEY"),
        ("azure/gpt", dragoman.ModelNotFoundError, "Azure OpenAI needs an address: Client('azure'"),
        (
            "bedrock/anthropic.claude-3",
            dragoman.ModelNotFoundError,
            "no upstream is called 'bedrock'; there are ollama",
        ),
    ],
)
def test_a_model_that_is_not_there_says_what_to_do(model: str, kind: type[Exception], message: str) -> None:
    with dragoman.Client(env={}) as client, pytest.raises(kind) as caught:
        client.chat(model, "hello")
    assert message in str(caught.value)


def test_litellms_names_of_upstreams_lead_there() -> None:
    with dragoman.Client(env={}) as client:
        assert client.upstreams.targets("ollama_chat/qwen3")[0][1].upstream.name == "ollama"


@pytest.mark.parametrize("name", ["Timeout", "ContextWindowExceededError", "APIConnectionError", "NotFoundError"])
def test_a_litellm_exception_names_ours(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(dragoman, name)
    ours = str(caught.value).rpartition("use ")[2]
    assert issubclass(getattr(dragoman, ours), dragoman.UpstreamError)
