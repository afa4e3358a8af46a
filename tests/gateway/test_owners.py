"""Things that providers keep for our keys: a key names its own, and not those of others."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.accounts.grants import Grant
from dragoman.gateway.stores.keys import KeyStore
from dragoman.gateway.stores.reasoning_state import SqliteStateStore
from dragoman.gateway.stores.responses import SqliteResponseStore, StoredResponse
from dragoman.gateway.stores.sqlite import share_out
from dragoman.gateway.stores.sqlite_keys import SqliteKeyStore
from tests.gateway.house import faultline, open_house, say, stream, upstream
from tests.gateway.web import Got, post

NAME = "thing_of_a_provider"
GEMINI_FILE = f"https://generativelanguage.googleapis.com/v1beta/files/{NAME}"
RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
GEMINI = "/v1beta/models/m:generateContent"
DIALECTS = {RESPONSES: "openai_responses", CHAT: "openai_chat", MESSAGES: "anthropic", GEMINI: "gemini"}
Body = dict[str, Any]


def asked(*items: Body, **more: Any) -> Body:
    return {"model": "m", "input": [*items, {"role": "user", "content": "hi"}], **more}


def said(*blocks: Body, **more: Any) -> Body:
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [*blocks, TEXT]}], **more}


def put(*parts: Body, **more: Any) -> Body:
    return {"contents": [{"role": "user", "parts": [*parts, {"text": "hi"}]}], **more}


TEXT = {"type": "text", "text": "hi"}
PICTURE = "https://example.test/a.png"
CALL: Body = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]}
FILE = {"type": "input_file", "file_id": NAME}
SPOKEN = {"role": "assistant", "audio": {"id": NAME}}
WAYS: dict[str, tuple[str, Body]] = {
    "a file": (RESPONSES, asked({"role": "user", "content": [FILE]})),
    "a picture": (RESPONSES, asked({"role": "user", "content": [{"type": "input_image", "file_id": NAME}]})),
    "a file in a result": (
        RESPONSES,
        asked(CALL, {"type": "function_call_output", "call_id": "c", "output": [FILE]}),
    ),
    "an item": (RESPONSES, asked({"type": "item_reference", "id": NAME})),
    "an item without a type": (RESPONSES, asked({"id": NAME})),
    "a thought": (RESPONSES, asked({"type": "reasoning", "id": NAME, "summary": []}, SAID)),
    "a container in history": (
        RESPONSES,
        asked({"type": "code_interpreter_call", "id": "ci", "container_id": NAME, "code": "1", "outputs": []}),
    ),
    "a conversation": (RESPONSES, asked(conversation=NAME)),
    "a conversation as an object": (RESPONSES, asked(conversation={"id": NAME})),
    "a prompt": (RESPONSES, asked(prompt={"id": NAME})),
    "a file for a prompt": (RESPONSES, asked(prompt={"id": NAME, "variables": {"f": FILE}})),
    "an earlier response": (RESPONSES, asked(previous_response_id=NAME)),
    "a vector store": (RESPONSES, asked(tools=[{"type": "file_search", "vector_store_ids": [NAME]}])),
    "a container": (RESPONSES, asked(tools=[{"type": "code_interpreter", "container": NAME}])),
    "a container's files": (
        RESPONSES,
        asked(tools=[{"type": "code_interpreter", "container": {"type": "auto", "file_ids": [NAME]}}]),
    ),
    "a file beside its content": (
        RESPONSES,
        asked({"role": "user", "content": [{**FILE, "file_data": "data:text/plain;base64,aGk="}]}),
    ),
    "a picture beside its address": (
        RESPONSES,
        asked({"role": "user", "content": [{"type": "input_image", "image_url": PICTURE, "file_id": NAME}]}),
    ),
    "chat: a file beside its content": (
        CHAT,
        said({"type": "file", "file": {"file_id": NAME, "file_data": "data:text/plain;base64,aGk="}}),
    ),
    "anthropic: a file beside its address": (
        MESSAGES,
        said({"type": "image", "source": {"type": "url", "url": PICTURE, "file_id": NAME}}),
    ),
    "anthropic: a container of a turn": (
        MESSAGES,
        {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi", "container": NAME}]},
    ),
    "gemini: a file in small letters": (GEMINI, put({"file_data": {"file_uri": GEMINI_FILE}})),
    "gemini: a file in large letters": (GEMINI, put({"fileData": {"fileUri": GEMINI_FILE.replace("https", "HTTPS")}})),
    "gemini: a file at a port": (GEMINI, put({"fileData": {"fileUri": GEMINI_FILE.replace(".com", ".com:443")}})),
    "gemini: a file by its name": (GEMINI, put({"fileData": {"fileUri": f"files/{NAME}"}})),
    "gemini: a store in small letters": (GEMINI, put(tools=[{"file_search": {"file_search_store_names": [NAME]}}])),
    "gemini: a cache in small letters": (GEMINI, put(cached_content=f"cachedContents/{NAME}")),
    "gemini: a corpus": (
        GEMINI,
        put(tools=[{"retrieval": {"vertex_rag_store": {"rag_resources": [{"rag_corpus": NAME}]}}}]),
    ),
    "chat: a file": (CHAT, said({"type": "file", "file": {"file_id": NAME}})),
    "chat: spoken before": (CHAT, {"model": "m", "messages": [SPOKEN, {"role": "user", "content": "hi"}]}),
    "anthropic: a file": (MESSAGES, said({"type": "document", "source": {"type": "file", "file_id": NAME}})),
    "anthropic: a picture": (MESSAGES, said({"type": "image", "source": {"type": "file", "file_id": NAME}})),
    "anthropic: an upload": (MESSAGES, said({"type": "container_upload", "file_id": NAME})),
    "anthropic: a container": (MESSAGES, said(container=NAME)),
    "anthropic: a container with skills": (MESSAGES, said(container={"id": NAME, "skills": []})),
    "gemini: a cache": (GEMINI, put(cachedContent=f"cachedContents/{NAME}")),
    "gemini: a file": (GEMINI, put({"fileData": {"fileUri": GEMINI_FILE, "mimeType": "text/plain"}})),
    "gemini: a bucket": (GEMINI, put({"fileData": {"fileUri": f"gs://{NAME}", "mimeType": "text/plain"}})),
    "gemini: a store": (GEMINI, put(tools=[{"fileSearch": {"fileSearchStoreNames": [NAME]}}])),
}
NAMES = {
    "gemini: a cache": f"cachedContents/{NAME}",
    "gemini: a cache in small letters": f"cachedContents/{NAME}",
    "gemini: a file in small letters": GEMINI_FILE,
    "gemini: a file in large letters": GEMINI_FILE.replace("https", "HTTPS"),
    "gemini: a file at a port": GEMINI_FILE.replace(".com", ".com:443"),
    "gemini: a file by its name": f"files/{NAME}",
    "gemini: a file": GEMINI_FILE,
    "gemini: a bucket": f"gs://{NAME}",
}
REPLIES: dict[str, Body] = {
    RESPONSES: {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": []},
    CHAT: {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
    },
    MESSAGES: {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [TEXT]},
    GEMINI: {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}]},
}


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return SqliteKeyStore(tmp_path / "keys.db")


@pytest.mark.parametrize("way", WAYS)
def test_t17_a_key_names_only_things_of_its_own(way: str, keys: KeyStore) -> None:
    door, body = WAYS[way]
    ada, bob = ({"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob"))
    with faultline(say(200, json.dumps(REPLIES[door]).encode())) as line:
        up = upstream("up", DIALECTS[door], line.url, models=("m",))
        with open_house(up, keys=keys) as house:
            assert post(house.url, door, body, ada).status == 400, "a thing that is not known here"
            unknown = post(house.url, door, body, bob)
            assert (unknown.status, "not found" in unknown.text) == (400, True)
            house.gateway.store.own(owner(keys, "ada"), [NAMES.get(way, NAME)])
            foreign = post(house.url, door, body, bob)
            assert foreign.status == 400
            assert without_id(foreign) == without_id(unknown), "nothing tells it from a thing that is not known"
            assert line.seen == [], "nothing was sent"
            assert post(house.url, door, body, ada).status == 200
            assert NAME in line.seen[-1].body.decode()


OWN = "/dragoman/v1/chat"  # extras of any dialect stand beside each value there
NAMED = {"file_id": NAME, "source": {"type": "file", "file_id": NAME}, "fileData": {"fileUri": GEMINI_FILE}}
VALUES: dict[str, Body] = {
    "text": {"kind": "text", "text": "hi"},
    "picture": {"kind": "image", "url": PICTURE},
    "document": {"kind": "document", "data": "aGk=", "media_type": "application/pdf"},
}


def own(part: Body, **more: Any) -> Body:
    return {"model": "m", "messages": [{"role": "user", "parts": [part], **more}]}


@pytest.mark.parametrize("dialect", DIALECTS.values())
@pytest.mark.parametrize("place", [*VALUES, "turn", "result", "tool", "item", "opaque"])
def test_t17_an_extra_at_our_own_door_names_nothing_of_another_key(place: str, dialect: str, keys: KeyStore) -> None:
    """`check_names` saw the values, and not the extras that stand in their place when they are written."""
    ada, bob = ({"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob"))
    extras, text = {dialect: {**NAMED, "type": "input_file"}}, VALUES["text"]
    match place:
        case "turn":
            body = own(text, extras={dialect: {"content": [FILE], "parts": [NAMED]}})
        case "result":
            body = own({"kind": "tool_result", "call_id": "c", "parts": [{**text, "extras": extras}]})
        case "tool":
            search = {"type": "file_search", "vector_store_ids": [NAME], "fileSearch": {"fileSearchStoreNames": [NAME]}}
            body = {**own(text), "tools": [{"kind": "function", "name": "f", "extras": {dialect: search}}]}
        case "item":
            body = own(text, extras={dialect: {"type": "item_reference", "id": NAME, "file_id": NAME}})
        case "opaque":
            body = own({"kind": "opaque", "dialect": dialect, "body": {"type": "item_reference", "id": NAME, **NAMED}})
        case _:
            body = own({**VALUES[place], "extras": extras})
    door = next(path for path, name in DIALECTS.items() if name == dialect)
    with (
        faultline(say(200, json.dumps(REPLIES[door]).encode())) as line,
        open_house(upstream("up", dialect, line.url, models=("m",)), keys=keys) as house,
    ):
        house.gateway.store.own(owner(keys, "ada"), [NAME, GEMINI_FILE])
        assert post(house.url, OWN, body, bob).status == 400
        assert not any(NAME.encode() in seen.body for seen in line.seen)
        assert post(house.url, OWN, own(text), ada).status == 200


@pytest.mark.parametrize("way", WAYS)
def test_the_only_key_names_what_it_likes(way: str, keys: KeyStore) -> None:
    door, body = WAYS[way]
    keys.new("boss", admin=True)
    ada = {"x-api-key": keys.new("ada", admin=False)}
    with (
        faultline(say(200, json.dumps(REPLIES[door]).encode())) as line,
        open_house(upstream("up", DIALECTS[door], line.url, models=("m",)), keys=keys) as house,
    ):
        assert post(house.url, door, body, ada).status == 200
        assert NAME in line.seen[-1].body.decode()


@pytest.mark.parametrize("way", ["a prompt", "an earlier response", "chat: a file"])
def test_what_the_operator_shares_is_everyones(way: str, keys: KeyStore) -> None:
    door, body = WAYS[way]
    key = [{"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob")][1]
    with faultline(say(200, json.dumps(REPLIES[door]).encode())) as line:
        up = upstream("up", DIALECTS[door], line.url, models=("m",))
        with open_house(up, keys=keys, shared_ids=("thing_*",)) as house:
            assert post(house.url, door, body, key).status == 200


@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/responses/input_tokens"])
@pytest.mark.parametrize("way", [way for way, (door, _) in WAYS.items() if door == RESPONSES])
def test_other_doors_do_not_leak_it_either(way: str, path: str, keys: KeyStore) -> None:
    key = [{"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob")][1]
    with (
        faultline(say(200, b"{}")) as line,
        open_house(upstream("up", "openai_responses", line.url, models=("m",)), keys=keys) as house,
    ):
        assert post(house.url, path, WAYS[way][1], key).status == 400
        assert line.seen == []


# ---------------------------------------------------------------- what answers make

ITEMS: list[Body] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "open('x', file_id='never_made')",
        "outputs": [],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": "see",
                "annotations": [
                    {
                        "type": "container_file_citation",
                        "file_id": "cfile_1",
                        "container_id": "cntr_1",
                        "filename": "a",
                        "start_index": 0,
                        "end_index": 1,
                    }
                ],
            }
        ],
    },
]
ANSWER: Body = {**REPLIES[RESPONSES], "output": ITEMS, "metadata": {"file_id": "never_made"}}


def as_stream(answer: Body) -> bytes:
    begun = {**answer, "status": "in_progress", "output": []}
    events: list[Body] = [{"type": "response.created", "response": begun}]
    for i, item in enumerate(answer["output"]):
        events += [
            {"type": "response.output_item.added", "output_index": i, "item": item},
            {"type": "response.output_item.done", "output_index": i, "item": item},
        ]
    events.append({"type": "response.completed", "response": answer})
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': i})}\n\n".encode()
        for i, event in enumerate(events)
    )


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_t17_what_an_answer_makes_belongs_to_its_key(streamed: bool, keys: KeyStore) -> None:
    ada, bob = ({"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob"))
    answer = stream(as_stream(ANSWER)) if streamed else say(200, json.dumps(ANSWER).encode())
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    with (
        faultline(answer, say(200, json.dumps(REPLIES[RESPONSES]).encode())) as line,
        open_house(upstream("up", "openai_responses", line.url, models=("m",)), keys=keys) as house,
    ):
        assert post(house.url, RESPONSES, asked(stream=streamed, tools=tools), ada).status == 200
        later = [
            asked(ITEMS[0], SAID),
            asked(*ITEMS),
            asked({"type": "item_reference", "id": "msg_1"}),
            asked(tools=[{"type": "code_interpreter", "container": "cntr_1"}]),
            asked({"role": "user", "content": [{"type": "input_file", "file_id": "cfile_1"}]}),
        ]
        for body in later:
            assert post(house.url, RESPONSES, body, bob).status == 400, body
        assert len(line.seen) == 1
        for body in later:
            assert post(house.url, RESPONSES, body, ada).status == 200, body
        never = asked({"role": "user", "content": [{"type": "input_file", "file_id": "never_made"}]})
        assert post(house.url, RESPONSES, never, ada).status == 400, "words claim nothing"


def test_the_container_of_another_dialect_belongs_to_its_key(keys: KeyStore) -> None:
    ada, bob = ({"x-api-key": keys.new(name, admin=False)} for name in ("ada", "bob"))
    made = {"type": "code_execution_output", "file_id": "file_made"}
    result = {"type": "code_execution_result", "content": [made], "stdout": "", "stderr": "", "return_code": 0}
    content = [
        {"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "never_made"}},
        {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {"file_id": "never_made"}},
        {"type": "code_execution_tool_result", "tool_use_id": "s", "content": result},
    ]
    reply = {**REPLIES[MESSAGES], "content": content, "container": {"id": "container_1", "expires_at": "2027-01-01"}}
    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    with (
        faultline(say(200, json.dumps(reply).encode())) as line,
        open_house(upstream("up", "anthropic", line.url, models=("m",)), keys=keys) as house,
    ):
        assert post(house.url, MESSAGES, said(tools=tools), ada).status == 200
        for body in (said(container="container_1"), said({"type": "container_upload", "file_id": "file_made"})):
            assert post(house.url, MESSAGES, body, bob).status == 400
            assert post(house.url, MESSAGES, body, ada).status == 200
        claimed = said({"type": "container_upload", "file_id": "never_made"})
        assert post(house.url, MESSAGES, claimed, ada).status == 400, "a model's words claim nothing"


def owner(keys: KeyStore, name: str) -> str:
    table = keys.read()
    assert table is not None
    return next(row.id for row in table.rows if row.name == name)


def without_id(got: Got) -> str:
    return got.text.replace(got.headers["x-request-id"], "")


# ---------------------------------------------------------------- limits of keys hold for counts


def test_a_count_is_a_request_of_its_key(keys: KeyStore) -> None:
    key = {"x-api-key": keys.new("ada", admin=False, grant=Grant(rpm=2, models=("m",)))}
    with (
        faultline(say(200, b'{"input_tokens": 3}')) as line,
        open_house(upstream("up", "anthropic", line.url, models=("m", "n")), keys=keys) as house,
    ):
        path = "/v1/messages/count_tokens"
        assert post(house.url, path, said() | {"model": "n"}, key).status == 403
        assert [post(house.url, path, said(), key).status for _ in range(3)] == [200, 200, 429]
        assert len(line.seen) == 2


# ---------------------------------------------------------------- each key has its share of the store


@given(st.dictionaries(st.text(max_size=2), st.integers(1, 30), max_size=6), st.integers(0, 60))
def test_owners_with_most_rows_give_first(counts: dict[str, int], rows: int) -> None:
    given_up = share_out(counts, rows)
    left = {name: counts[name] - given_up.get(name, 0) for name in counts}
    assert sum(left.values()) == min(rows, sum(counts.values()))
    if given_up:
        assert max(left.values()) - min(left[name] for name in given_up) <= 1, "the rest of those that gave is even"
        assert all(left[name] <= min(left[giver] for giver in given_up) + 1 for name in left)


def test_a_key_that_stores_much_takes_no_room_from_others(tmp_path: Path) -> None:
    store = SqliteResponseStore(tmp_path / "x.db", 10)
    for number in range(3):
        store.put("ada", StoredResponse(id=f"a{number}", messages=(), wire=b"{}", created=number))
    for number in range(500):
        store.put("bob", StoredResponse(id=f"b{number}", messages=(), wire=b"{}", created=100 + number))
    assert store.list_ids("ada", "a", 9) == ["a2", "a1", "a0"]
    assert store.list_ids("bob", "b", 9) == [f"b{number}" for number in range(499, 492, -1)]
    store.close()
    states = SqliteStateStore(tmp_path / "x.db", 10)
    states.put("ada", "k", b"state")
    for number in range(30):
        states.put("bob", str(number), b"state")
    assert states.get("ada", ["k"]) == {"k": b"state"}
    states.close()
