"""What one Chat server's clients echo with a turn, sent to another Chat server (recorded traffic, read 2026-11-17)."""

from typing import Any

import pytest

from dragoman.upstream.profiles import profile_for
from tests.passes.test_cases import GONE, answer, ask, calls, dig, said
from tests.passes.wires import read, write

NAMELESS = {"role": "tool", "content": "5"}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
THOUGHT = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "ok"}]}
DETAIL = {"type": "reasoning.text", "text": "Hm.", "signature": "s", "format": "anthropic-claude-v1", "index": 0}

# what the history holds, the server, its model; a path in what is sent and the value there
ROWS: list[tuple[str, list[dict[str, Any]], str, str, Any]] = [
    ("Mistral's empty calls", [ask(), said("ok", tool_calls=[]), ask()], "openai", "messages.1.tool_calls", GONE),
    ("it is Mistral's own", [ask(), said("ok", tool_calls=[]), ask()], "mistral", "messages.1.tool_calls", []),
    ("an empty thought", [ask(), said("ok", reasoning=""), ask()], "groq", "messages.1.reasoning", GONE),
    ("an empty thought is taken", [ask(), said("ok", reasoning=""), ask()], "openrouter", "messages.1.reasoning", ""),
    ("words beside details", [ask(), said("ok", reasoning="Hm.", reasoning_details=[DETAIL]), ask()], "groq",
     "messages.1", said("ok")),
    ("a result without an id", [ask(), calls("c1"), NAMELESS], "openai", "messages.2.tool_call_id", "c1"),
    ("Z.ai knows it by its place", [ask(), calls("c1"), NAMELESS], "zai", "messages.2.tool_call_id", GONE),
    ("the name of a result", [ask(), calls("c1"), answer("c1") | {"name": "f"}], "groq", "messages.2.name", GONE),
    ("a name is taken", [ask(), calls("c1"), answer("c1") | {"name": "f"}], "cerebras", "messages.2.name", "f"),
    ("Mistral's thoughts in the content", [ask(), THOUGHT, ask()], "openai", "messages.1", said("ok")),
    ("they are Mistral's own", [ask(), THOUGHT, ask()], "mistral", "messages.1.content.0.type", "thinking"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "kind", "path", "value"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_a_turn_bears_what_the_server_takes(messages: list[dict[str, Any]], kind: str, path: str, value: Any) -> None:
    request = read("openai_chat", {"model": "m", "messages": messages})
    found = dig(write(request, profile_for(kind, "m", "openai_chat")), path)
    if value is GONE:
        assert type(found) is object, found
    else:
        assert found == value


def test_only_text_is_what_every_model_answers_in() -> None:
    request = read(
        "gemini", {"contents": [{"parts": [{"text": "q"}]}], "generationConfig": {"responseModalities": ["TEXT"]}}
    )
    assert "modalities" not in write(request, profile_for("mistral", "mistral-large-latest", "openai_chat"))
