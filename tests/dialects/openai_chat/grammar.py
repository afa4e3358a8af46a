"""The grammar of a Chat stream (FIELD-CASES appendix C), checked on every stream we write."""

from collections import defaultdict
from typing import Any

from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import load_object


def check_stream(data: bytes) -> list[dict[str, Any]]:
    """The chunks, if the stream is legal: an error frame instead of the rest, else a finish per choice and [DONE]."""
    decoder = SseDecoder()
    frames = [*decoder.feed(data), *decoder.close()]
    assert frames, "nothing at all"
    assert all(frame.event == "" for frame in frames), "no frame has a name"
    done = [i for i, frame in enumerate(frames) if frame.data == b"[DONE]"]
    chunks = [load_object(frame.data) for frame in frames if frame.data != b"[DONE]"]
    if "error" in chunks[-1]:
        assert not done, "[DONE] after an error"
        assert all("error" not in chunk for chunk in chunks[:-1])
        chunks.pop()
    else:
        assert done == [len(frames) - 1], "one [DONE], the last"
    for key in ("id", "created", "model", "object"):
        assert len({chunk[key] for chunk in chunks}) <= 1, f"{key} changes"
    _check_choices(chunks, whole=bool(done))
    return chunks


def _check_choices(chunks: list[dict[str, Any]], *, whole: bool) -> None:
    seen: set[int] = set()
    finished: set[int] = set()
    calls: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for position, chunk in enumerate(chunks):
        if not chunk["choices"]:
            assert "usage" in chunk
            assert position == len(chunks) - 1, "usage is the last chunk"
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert index not in finished, "a chunk after the finish"
            assert ("role" in delta) == (index not in seen), "the role comes first, and once"
            seen.add(index)
            for fragment in delta.get("tool_calls", ()):
                _check_fragment(calls[index], fragment)
            if choice["finish_reason"] is not None:
                assert delta == {}, "the last delta is empty"
                finished.add(index)
    for pieces in calls.values():
        assert list(pieces) == list(range(len(pieces))), "calls are numbered from 0"
    if whole:
        assert seen, "no choice at all"


def _check_fragment(calls: dict[int, dict[str, Any]], fragment: dict[str, Any]) -> None:
    index = fragment["index"]
    inner = fragment.get("function") or fragment.get("custom") or {}
    if index not in calls:
        assert fragment["id"], "the first fragment has the id"
        assert fragment["type"] in ("function", "custom")
        assert type(inner["name"]) is str
        calls[index] = fragment
    else:
        assert "id" not in fragment, "the id comes once"
        assert "name" not in inner, "the name comes once"
