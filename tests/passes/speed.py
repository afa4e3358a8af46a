"""What the passes cost on a history that is legal already, beside decoding it: `python -m tests.passes.speed`.

The yardstick: at most the decode of the same history, for 100 turns of 150 kB; linear in the number of turns.
"""

from functools import partial
from time import process_time
from timeit import repeat
from typing import Any

from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.upstream.profiles import profile_for
from dragoman.wire import WireRequest

TARGETS = (
    ("anthropic", "claude-opus-5-5"),
    ("openai", "gpt-4o"),
    ("openai", "gpt-5"),
    ("gemini", "gemini-3-pro"),
    ("ollama", "llama3.3"),
    ("mistral", "mistral-large"),
)


def make_history(turns: int, size_bytes: int) -> bytes:
    """An agent's conversation as Claude Code would send it: half of it calls, half results, and twenty tools."""
    said = size_bytes // turns - 110
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x" * said}]
    for i in range((turns - 1) // 2):
        call = {"type": "tool_use", "id": f"toolu_{i}", "name": f"tool_{i % 20}", "input": {"path": "/a/b", "n": i}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "y" * said}, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "z" * said}
        messages.append({"role": "user", "content": [result]})
    schema = {"type": "object", "properties": {f"p{j}": {"type": "string"} for j in range(5)}, "required": ["p0"]}
    tools = [{"name": f"tool_{k}", "description": "d" * 80, "input_schema": schema} for k in range(20)]
    return dump_json({"model": "m", "max_tokens": 8000, "system": "S", "messages": messages, "tools": tools})


def decode(raw: bytes) -> Request:
    return find_dialect("anthropic").decode_request(WireRequest(body=load_json(raw)), Notes())


def _legalise(request: Request, profile: Profile) -> Request:
    return legalise(request, profile, Notes())


def measure(turns: int, size_bytes: int) -> tuple[int, float, dict[str, float]]:
    """Size, seconds to decode, seconds of all passes per target."""
    raw = make_history(turns, size_bytes)
    number = max(3, 2000 // turns)
    decoding = min(repeat(lambda: decode(raw), number=number, repeat=9, timer=process_time)) / number
    request = decode(raw)
    passes: dict[str, float] = {}
    for kind, model in TARGETS:
        profile = profile_for(kind, model)
        legal = legalise(replace(request, model=model), profile, Notes())
        run = partial(_legalise, legal, profile)
        seconds = min(repeat(run, number=number, repeat=9, timer=process_time)) / number
        passes[f"{kind} {model}"] = seconds
    return len(raw), decoding, passes


if __name__ == "__main__":
    for turns, size_bytes in ((10, 15_000), (100, 150_000), (1000, 1_500_000)):
        size, decoding, passes = measure(turns, size_bytes)
        print(f"{turns:5} turns {size / 1000:6.0f} kB  decode {decoding * 1e6:6.0f} us")  # noqa: T201
        for target, seconds in passes.items():
            print(f"      {target:28} {seconds * 1e6:6.0f} us  {seconds / decoding:.2f} of the decode")  # noqa: T201
