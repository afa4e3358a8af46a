"""What another provider's own tools did, told as text: by table, bounded, and never to the one who can read it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.model.messages import Opaque, Text, ToolResult
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.passes.server_tools.history import LONGEST, tell_part, tell_server_history
from tests.examples import examples
from tests.passes.short_forms import assistant, call, parts_of, result, talk, user
from tests.recorded import cases, needs_corpus

SECRET = "Z" * 50
TOLD: list[tuple[str, str, dict[str, Any], str | None]] = [
    (
        "a search that failed",
        "anthropic",
        {
            "type": "web_search_tool_result",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
        "[result of web_search]\nfailed: max_uses_exceeded",
    ),
    (
        "a page",
        "anthropic",
        {
            "type": "web_fetch_tool_result",
            "content": {
                "type": "web_fetch_result",
                "url": "https://ex.org/a",
                "content": {"type": "document", "title": "A", "source": {"type": "text", "data": "words"}},
            },
        },
        "[result of web_fetch]\n- <https://ex.org/a>\n- A\nwords",
    ),
    (
        "a page that is no text",
        "anthropic",
        {
            "type": "web_fetch_tool_result",
            "content": {"url": "https://ex.org/a.pdf", "content": {"source": {"type": "base64", "data": SECRET}}},
        },
        "[result of web_fetch]\n- <https://ex.org/a.pdf>",
    ),
    (
        "code that ran",
        "anthropic",
        {"type": "code_execution_tool_result", "content": {"stdout": "42\n", "stderr": "", "return_code": 0}},
        "[result of code_execution]\n42",
    ),
    (
        "a call of an MCP server",
        "anthropic",
        {"type": "mcp_tool_use", "server_name": "wiki", "name": "ask", "input": {"q": "who?", "lang": "en"}},
        '[wiki/ask: {"q":"who?","lang":"en"}]',
    ),
    (
        "what an MCP server said",
        "anthropic",
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "me"}]},
        "[result of mcp]\nme",
    ),
    (
        "encrypted only",
        "anthropic",
        {"type": "web_search_tool_result", "content": [{"encrypted_content": SECRET}]},
        None,
    ),
    ("no tool at all", "anthropic", {"type": "compaction", "content": "x"}, None),
    (
        "a page that was opened",
        "openai_responses",
        {"type": "web_search_call", "action": {"type": "open_page", "url": "https://ex.org"}},
        "[web_search: https://ex.org]",
    ),
    (
        "a search with several words",
        "openai_responses",
        {"type": "web_search_call", "action": {"type": "search", "query": "snow", "queries": ["snow", "ice"]}},
        "[web_search: snow, ice]",
    ),
    (
        "files",
        "openai_responses",
        {"type": "file_search_call", "queries": ["a", "b"], "results": [{"filename": "f.txt", "text": "words"}]},
        "[file_search: a, b]\n[result of file_search]\n- f.txt\nwords",
    ),
    (
        "an interpreter",
        "openai_responses",
        {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        "[code_interpreter: 1+1]\n[result of code_interpreter]\n2",
    ),
    (
        "MCP with an error",
        "openai_responses",
        {"type": "mcp_call", "server_label": "wiki", "name": "ask", "arguments": '{"q":1}', "error": "no"},
        '[wiki/ask: {"q":1}]\n[result of wiki/ask]\nfailed: no',
    ),
    ("a picture", "openai_responses", {"type": "image_generation_call", "result": SECRET}, None),
    (
        "Gemini's search",
        "gemini",
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["bergen"]}}, "thoughtSignature": SECRET},
        '[google_search_web: ["bergen"]]',
    ),
]


@pytest.mark.parametrize(("dialect", "body", "told"), [case[1:] for case in TOLD], ids=[case[0] for case in TOLD])
def test_a_part_becomes_text(dialect: str, body: dict[str, Any], told: str | None) -> None:
    assert tell_part(Opaque(dialect=dialect, body=body)) == told


def _history(part: Opaque) -> Any:
    return talk(user("q"), assistant(part, "So."), user("and?"))


def test_its_own_origin_gets_it_back_as_it_is() -> None:
    request = _history(Opaque(dialect="anthropic", body=TOLD[0][2]))
    assert tell_server_history(request, find_dialect("anthropic").profile, Notes()) is request


def test_a_long_result_is_shortened_and_says_so() -> None:
    body = {"type": "code_execution_tool_result", "content": {"stdout": "x" * 9_000}}
    notes = Notes()
    told = tell_server_history(_history(Opaque(dialect="anthropic", body=body)), find_dialect("gemini").profile, notes)
    part = told.messages[1].parts[0]
    assert isinstance(part, Text)
    assert len(part.text) < LONGEST + 60
    assert part.text.endswith("more characters left out]")
    (note,) = notes
    assert (note.kind, note.where) == ("altered", "/messages/1/parts/0")


def test_with_the_policy_drop_the_history_stays_as_it_is() -> None:
    profile = Profile(kind="x", dialect="openai_chat", lacks=("server_tools",), policy={"server_tools": "drop"})
    request = _history(Opaque(dialect="anthropic", body=TOLD[0][2]))
    assert tell_server_history(request, profile, Notes()) is request


@needs_corpus
@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses", "gemini"])
def test_recorded_server_tools_say_something_elsewhere_and_nothing_encrypted(dialect: str) -> None:
    count = 0
    for case in cases(dialect):
        wire = case.request()
        if wire is None or case.failed or b"tool" not in (case.read("request.json") or b""):
            continue
        request = find_dialect(dialect).decode_request(wire, Notes())
        before = [part for message in request.messages for part in message.parts if type(part) is Opaque]
        told = [text for part in before if (text := tell_part(part)) is not None]
        count += len(told)
        assert not any("encrypted" in text or "ciphertext" in text for text in told)
        once = legalise(request, find_dialect("openai_chat").profile, Notes())
        assert legalise(once, find_dialect("openai_chat").profile, Notes()) is once
    assert count


odd = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["content", "source", "title", "url", "error", "queries", "text"]), inner)
    ),
    max_leaves=6,
)
KINDS = ["server_tool_use", "mcp_tool_use", "x_tool_result", "web_search_call", "file_search_call", "mcp_call"]


@settings(max_examples=examples(200), deadline=None)
@given(
    dialect=st.sampled_from(["anthropic", "openai_responses", "gemini", "elsewhere"]),
    kind=st.sampled_from([*KINDS, "code_interpreter_call"]),
    keys=st.dictionaries(
        st.sampled_from(["input", "content", "action", "queries", "results", "outputs", "error", "toolCall", "name"]),
        odd,
    ),
)
def test_no_part_is_too_odd(dialect: str, kind: str, keys: dict[str, Any]) -> None:
    told = tell_part(Opaque(dialect=dialect, body={"type": kind, **keys}))
    assert told is None or told.strip()


def search_result(text: str) -> Opaque:
    inside = [{"type": "text", "text": text}]
    body = {"type": "search_result", "source": "https://ex.org/a", "title": "A", "content": inside, "citations": {}}
    return Opaque(dialect="anthropic", body=body)


PIECES = {"type": "content", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
GIVEN: list[tuple[str, Opaque, str]] = [
    ("a search result", search_result("words " * 2_000), "[search result: A <https://ex.org/a>]\n" + "words " * 2_000),
    (
        "a document in pieces",
        Opaque(dialect="anthropic", body={"type": "document", "title": "D", "context": "old", "source": PIECES}),
        "[document: D]\nold\none\ntwo",
    ),
    (
        "a summary of earlier turns",
        Opaque(dialect="anthropic", body={"type": "compaction", "content": "They spoke of rain."}),
        "They spoke of rain.",
    ),
]


@pytest.mark.parametrize(("part", "told"), [row[1:] for row in GIVEN], ids=[row[0] for row in GIVEN])
@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "gemini", "ollama"])
def test_a_document_that_the_client_gave_becomes_whole_text(part: Opaque, told: str, name: str) -> None:
    notes = Notes()
    sent = tell_server_history(talk(user(part, "q")), find_dialect(name).profile, notes)
    assert [inner.text for inner in sent.messages[0].parts if isinstance(inner, Text)] == [told, "q"]
    assert [note.kind for note in notes] == ["altered"]


def test_a_search_result_in_a_tools_result_becomes_text_there() -> None:
    request = talk(user("q"), assistant(call("a")), user(replace(result("a"), parts=(search_result("words"),))))
    sent = tell_server_history(request, find_dialect("openai_chat").profile, Notes())
    (found,) = parts_of(sent, ToolResult)
    assert [inner.text for inner in found.parts] == ["[search result: A <https://ex.org/a>]\nwords"]
    same = tell_server_history(request, find_dialect("anthropic").profile, Notes())
    assert same is request


def test_the_output_of_a_shell_becomes_text() -> None:
    asked = Opaque(
        dialect="openai_responses",
        body={"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls", "-l"]}},
    )
    found = Opaque(dialect="openai_responses", body={"type": "local_shell_call_output", "id": "c", "output": "a.txt"})
    assert [tell_part(asked), tell_part(found)] == ["[shell: ls -l]", "[result of shell]\na.txt"]
