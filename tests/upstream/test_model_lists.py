"""Lists of models: what each kind of server says about its models, and what is made of it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.dialects import find_dialect
from dragoman.dialects._services import ListedModel
from dragoman.gateway.config.settings import Settings
from dragoman.upstream.model_lists import ModelLists, describe
from dragoman.upstream.profiles import find_known, load_known, load_rows
from dragoman.upstream.render import find_destination
from dragoman.upstream.routing import Routes, find_targets, list_models
from dragoman.upstream.transport import Transport
from dragoman.upstream.upstream_state import UpstreamState
from tests.gateway.house import Faultline, House, Seen, faultline, open_house, upstream
from tests.gateway.web import get, post

# A row as a server writes it -> what is read from it.
ROWS: list[tuple[str, str, dict[str, Any], ListedModel]] = [
    ("vllm", "openai_chat", {"id": "m", "max_model_len": 8192}, ListedModel(name="m", window=8192)),
    (
        "llama.cpp",
        "openai_chat",
        {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072, "n_params": 135, "n_embd": 64, "size": 9}},
        ListedModel(name="m", owner="llamacpp", parameters=135, embedding_length=64, size_bytes=9),
    ),
    (
        "openrouter",
        "openai_chat",
        {
            "id": "a/b",
            "context_length": 200_000,
            "top_provider": {"context_length": 200_000, "max_completion_tokens": 64_000},
            "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["tools", "temperature"],
        },
        ListedModel(name="a/b", window=200_000, max_output=64_000, vision=True, thinking=False, tools=True),
    ),
    (
        "groq",
        "openai_chat",
        {"id": "m", "created": 1_700_000_000, "context_window": 131_072, "max_completion_tokens": 32_768},
        ListedModel(name="m", created=1_700_000_000, window=131_072, max_output=32_768),
    ),
    (
        "mistral",
        "openai_chat",
        {"id": "m", "max_context_length": 32_768, "capabilities": {"vision": False, "function_calling": True}},
        ListedModel(name="m", window=32_768, vision=False, tools=True),
    ),
    (
        "moonshot",
        "openai_chat",
        {"id": "m", "context_length": 262_144, "supports_image_in": True, "supports_reasoning": True},
        ListedModel(name="m", window=262_144, vision=True, thinking=True),
    ),
    (
        "lmstudio",
        "openai_chat",
        {"id": "m", "type": "vlm", "arch": "qwen2", "max_context_length": 32_768, "loaded_context_length": 4096},
        ListedModel(name="m", window=4096, vision=True, family="qwen2"),
    ),
    (
        "anthropic",
        "anthropic",
        {
            "id": "m",
            "max_input_tokens": 200_000,
            "max_tokens": 64_000,
            "capabilities": {"thinking": {"supported": True}},
        },
        ListedModel(name="m", max_input=200_000, max_output=64_000, thinking=True),
    ),
    (
        "gemini",
        "gemini",
        {"name": "models/m", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536, "thinking": True},
        ListedModel(name="m", max_input=1_048_576, max_output=65_536, thinking=True),
    ),
    (
        "ollama",
        "ollama",
        {"name": "m:3b", "size": 12, "digest": "d", "details": {"family": "llama", "parameter_size": "3.2B"}},
        ListedModel(name="m:3b", size_bytes=12, digest="d", family="llama", parameter_size="3.2B"),
    ),
    ("says nothing", "openai_chat", {"id": "m", "object": "model"}, ListedModel(name="m")),
    ("odd types", "openai_chat", {"id": "m", "max_model_len": "x", "meta": 3, "type": []}, ListedModel(name="m")),
]


@pytest.mark.parametrize(("dialect", "row", "card"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_row_of_each_servers_list_is_read(dialect: str, row: dict[str, Any], card: ListedModel) -> None:
    codec = find_dialect(dialect).models
    assert codec is not None
    key = "models" if dialect in ("gemini", "ollama") else "data"
    assert codec.decode({key: [row, {"no": "name"}, 7]}) == [card]


DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini")
FULL = ListedModel(name="m", created=1_700_000_000, window=8192, max_output=1024, thinking=False)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_list_that_we_write_is_read_by_a_dragoman_in_front(dialect: str) -> None:
    codec = find_dialect(dialect).models
    assert codec is not None
    read = codec.decode(codec.encode([FULL, ListedModel(name="n")], ""))
    assert [model.name for model in read] == ["m", "n"]
    assert (read[0].reads, read[0].max_output) == (8192, 1024)
    assert (read[1].reads, read[1].max_output, read[1].vision) == (None, None, None)


SHOWN = {
    "capabilities": ["completion", "tools"],
    "model_info": {
        "general.architecture": "llama",
        "general.parameter_count": 3_212_749_888,
        "llama.context_length": 131_072,
        "llama.embedding_length": 3072,
    },
}
PROPS = {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": False}}


def answer_json(table: dict[str, Any]) -> Any:
    """A server that answers by path, 404 elsewhere."""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        found = table.get(seen.path.partition("?")[0])
        body = json.dumps(found if found is not None else {"error": "no"}).encode()
        head = f"HTTP/1.1 {200 if found is not None else 404} X\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    return script


@contextmanager
def house_of(kind: str, dialect: str, table: dict[str, Any], **more: Any) -> Iterator[tuple[House, Faultline]]:
    with faultline(answer_json(table)) as line:
        one = upstream("one", dialect, line.url, kind=kind, models=more.pop("models", ()), **more)
        with open_house(one, ask_models=True) as house:
            yield house, line


def test_the_list_of_an_ollama_has_what_show_says_of_each_model() -> None:
    table: dict[str, Any] = {"/api/tags": {"models": [{"name": "llama3.2:3b", "digest": "d1"}]}, "/api/show": SHOWN}
    with house_of("ollama", "ollama", table) as (house, line):
        card = get(house.url, "/v1beta/models").json["models"][0]
        assert (card["name"], card["inputTokenLimit"], card["thinking"]) == ("models/llama3.2:3b", 131_072, False)
        shown = post(house.url, "/api/show", {"model": "llama3.2:3b"}).json
        assert shown["capabilities"] == ["completion", "tools"]
        info = shown["model_info"]
        assert (info["general.parameter_count"], info["llama.embedding_length"]) == (3_212_749_888, 3072)
        assert [seen.path for seen in line.seen] == ["/api/tags", "/api/show"]


def test_a_model_pulled_later_appears() -> None:
    tags = [{"name": "old", "digest": "d1"}]
    with house_of("ollama", "ollama", {"/api/tags": {"models": tags}, "/api/show": SHOWN}) as (house, line):
        assert [row["id"] for row in get(house.url, "/v1/models").json["data"]] == ["old"]
        tags.append({"name": "new", "digest": "d2"})
        house.gateway.now.upstream_states["one"].listed_at -= 10.0  # the list is no longer fresh
        assert [row["id"] for row in get(house.url, "/v1/models").json["data"]] == ["old", "new"]
        assert [seen.body for seen in line.seen if seen.path == "/api/show"] == [b'{"model":"old"}', b'{"model":"new"}']


def test_llama_cpp_says_its_window_and_that_it_is_blind_in_its_props() -> None:
    table = {"/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}, "/props": PROPS}
    with house_of("llamacpp", "openai_chat", table) as (house, _line):
        card = get(house.url, "/v1/models").json["data"][0]
        assert card["context_length"] == 4096
        assert card["capabilities"] == {"vision": False}
        profile = find_destination(house.gateway.now.upstream_states["one"], "anthropic", "m").profile
        assert (profile.window, profile.media.images) == (4096, ())


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/messages", {"max_tokens": 32_000}),
        ("/v1/chat/completions", {"max_tokens": 32_000}),
        ("/v1/responses", {"max_output_tokens": 32_000}),
        ("/api/chat", {"options": {"num_predict": 32_000}}),
        ("/v1beta/models/m:generateContent", {"generationConfig": {"maxOutputTokens": 32_000}}),
    ],
)
def test_a_limit_above_the_window_that_the_list_says_is_fitted_into_it(path: str, limit: dict[str, Any]) -> None:
    words: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    words["contents"] = [{"role": "user", "parts": [{"text": "hi"}]}]
    key = "contents" if "v1beta" in path else "input" if "responses" in path else "messages"
    with house_of("vllm", "openai_chat", {"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}}) as (
        house,
        line,
    ):
        get(house.url, "/v1/models")
        post(house.url, path, {"model": "m", key: words[key], **limit})
        sent = json.loads(line.seen[-1].body)
        assert 7000 < (sent.get("max_tokens") or sent["max_completion_tokens"]) < 8192


def test_lm_studio_is_asked_where_it_says_more() -> None:
    table = {"/api/v0/models": {"data": [{"id": "m", "type": "llm", "max_context_length": 4096}]}}
    with house_of("lmstudio", "openai_chat", table) as (house, _line):
        assert get(house.url, "/v1/models").json["data"][0]["context_length"] == 4096
    with house_of("lmstudio", "openai_chat", {"/v1/models": {"data": [{"id": "m"}]}}) as (house, _line):
        assert [row["id"] for row in get(house.url, "/v1/models").json["data"]] == ["m"]


def test_models_of_the_configuration_are_the_ones_listed_and_the_servers_list_says_what_they_are() -> None:
    table = {"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}, {"id": "n"}]}}
    with house_of("vllm", "openai_chat", table, models=("m",), lists_own=False) as (house, _line):
        rows = get(house.url, "/v1/models").json["data"]
        assert [(row["id"], row["context_length"]) for row in rows] == [("m", 8192)]


def test_the_configuration_wins_over_the_servers_list() -> None:
    table = {"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}}
    with house_of("vllm", "openai_chat", table, overrides={"window": 4000}) as (house, _line):
        assert get(house.url, "/v1/models").json["data"][0]["context_length"] == 4000


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 3}'])
def test_a_server_that_does_not_tell_its_models_lists_none_and_nothing_fails(body: bytes) -> None:
    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    with (
        faultline(script) as line,
        open_house(upstream("one", "openai_chat", line.url, models=()), ask_models=True) as house,
    ):
        assert get(house.url, "/v1/models").json["data"] == []
        assert line.seen


def test_an_azure_is_not_asked_because_requests_name_deployments() -> None:
    with house_of("azure", "openai_chat", {"/v1/models": {"data": [{"id": "m"}]}}) as (house, line):
        assert get(house.url, "/v1/models").json["data"] == []
        assert line.seen == []


def test_a_list_is_kept_for_the_next_start(tmp_path: Path) -> None:
    table = {"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}}
    with faultline(answer_json(table)) as line:
        spec = upstream("one", "openai_chat", line.url, kind="vllm", models=())

        async def ask() -> None:
            transport = Transport()
            state = UpstreamState(spec, lambda: 1000.0)
            lists = ModelLists(transport, lambda: 1000.0, lambda: 5000.0, tmp_path / "models.json")
            await lists.refresh([state], 0.0, 30.0)
            assert list(state.listed) == ["m"]
            await transport.close()

        asyncio.run(ask())
    later = UpstreamState(spec, lambda: 0.0)
    ModelLists(Transport(), wall=lambda: 6000.0, path=tmp_path / "models.json").recall([later])
    assert later.listed["m"].window == 8192
    too_late = UpstreamState(spec, lambda: 0.0)
    ModelLists(Transport(), wall=lambda: 5000.0 + 8 * 86400, path=tmp_path / "models.json").recall([too_late])
    assert too_late.listed == {}


def test_names_of_a_list_that_begin_with_another_upstreams_name_never_take_its_requests() -> None:
    router = upstream("openrouter", "openai_chat", "http://127.0.0.1:9", kind="openrouter", models=())
    openai = upstream("openai", "openai_chat", "http://127.0.0.1:9", kind="openai", models=())
    routes = Routes(upstreams=(router, openai), listed={"openrouter": ("openai/gpt-5.5", "z/glm")})
    assert list_models(routes) == {"openrouter/openai/gpt-5.5": "openrouter", "z/glm": "openrouter"}
    for asked, name, model in (
        ("openai/gpt-5.5", "openai", "gpt-5.5"),
        ("openrouter/openai/gpt-5.5", "openrouter", "openai/gpt-5.5"),
        ("z/glm", "openrouter", "z/glm"),
    ):
        found = find_targets(routes, asked, lambda: 0.0)[0]
        assert (found.upstream.name, found.model) == (name, model)


# ---------------------------------------------------------------- what is known without the server


@pytest.mark.parametrize(
    ("kind", "model", "window", "output", "vision"),
    [
        ("openai", "gpt-5.5", 922_000, 128_000, True),
        ("compatible", "gpt-5.5", 922_000, None, True),
        ("anthropic", "claude-opus-4-5", 200_000, 64_000, True),
        ("gemini", "gemini-2.5-flash", 1_048_576, 65_536, True),
        ("compatible", "my-own-model", None, None, None),
        ("vllm", "Qwen/Qwen9-0.5B", None, None, None),
    ],
)
def test_a_card_says_what_the_table_knows_and_nothing_of_other_models(
    kind: str, model: str, window: int | None, output: int | None, vision: bool | None
) -> None:
    spec = upstream("one", load_rows().kinds[kind].dialects[0], "http://127.0.0.1:9", kind=kind)
    card = describe(UpstreamState(spec, lambda: 0.0), model)
    assert (card.reads, card.vision) == (window, vision)
    assert output is None or card.max_output == output


def test_every_row_of_the_table_is_a_card_of_a_kind_we_know() -> None:
    known = load_known()
    assert set(known) <= set(load_rows().kinds)
    assert sum(len(rows) for rows in known.values()) > 500
    for kind, rows in known.items():
        for model in rows:
            assert find_known(kind, model) is not None
    assert Settings().ask_models is False
