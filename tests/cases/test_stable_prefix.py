"""FIELD-CASES 92: prompt caches live on beginnings that do not change."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.jsontypes import dump_json
from dragoman.upstream.profiles import profile_for
from tests.passes.test_cases import A, answer, ask, calls, fn, said
from tests.passes.test_prepare import TARGETS
from tests.passes.wires import read, write

IDS = [f"{kind}-{model.rpartition('/')[2]}" for kind, model in TARGETS]
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    ask("first"),
    {**calls("c1"), "reasoning_content": "hm"},
    answer("c1"),
    said("then", reasoning_content="so"),
    ask("second"),
]
GROWN = [*HISTORY, said("done", reasoning_content="well"), ask("third")]


def body(messages: list[dict[str, Any]], kind: str, model: str, **more: Any) -> dict[str, Any]:
    request = read("openai_chat", {"model": "m", "messages": messages, **more})
    return write(replace(request, model=model), profile_for(kind, model))


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=IDS)
def test_case_92_a_conversation_that_grows_keeps_its_beginning_byte_for_byte(kind: str, model: str) -> None:
    tools = [fn(A), fn(A, "other")]
    before, after = body(HISTORY, kind, model, tools=tools), body(GROWN, kind, model, tools=tools)
    for key, value in before.items():
        if key not in ("messages", "input", "contents"):
            assert dump_json(after[key]) == dump_json(value), key
            continue
        kept = [dump_json(turn) for turn in value]
        assert [dump_json(turn) for turn in after[key]][: len(kept)] == kept


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=IDS)
def test_case_92_equal_requests_are_equal_bytes(kind: str, model: str) -> None:
    assert dump_json(body(GROWN, kind, model)) == dump_json(body(GROWN, kind, model))


@pytest.mark.parametrize(("kind", "model"), TARGETS, ids=IDS)
def test_case_92_keys_keep_the_order_the_client_gave_them(kind: str, model: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in ("zebra", "apple", "mango")}}
    call = {**calls("c1")}
    call["tool_calls"][0]["function"]["arguments"] = '{"zebra":"1","apple":"2","mango":"3"}'
    text = json.dumps(body([ask(), call, answer("c1")], kind, model, tools=[fn(schema)]))
    places = [[i for i in range(len(text)) if text.startswith(name, i)] for name in ("zebra", "apple", "mango")]
    assert all(len(found) >= 2 for found in places), "in the schema and in the arguments"
    assert all(z < a < m for z, a, m in zip(*places, strict=True))
