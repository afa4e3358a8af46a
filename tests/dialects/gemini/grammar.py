"""What every Gemini stream we write must be (FIELD-CASES appendix C, protocols/gemini.md section 10)."""

from typing import Any

from dragoman.jsontypes import JsonObject, load_json


def read_frames(data: bytes) -> list[JsonObject]:
    """SSE with nothing but `data: ` lines: Google's own parser breaks on comments, `event:` and `[DONE]`."""
    assert data.endswith(b"\r\n\r\n"), data[-80:]
    frames: list[JsonObject] = []
    for piece in data.removesuffix(b"\r\n\r\n").split(b"\r\n\r\n"):
        assert piece.startswith(b'data: {"'), piece
        assert b"\n" not in piece
        frames.append(load_json(piece.removeprefix(b"data: ")))
    return frames


def check_stream(data: bytes, *, own: bool = False) -> list[JsonObject]:
    """The frames of a stream, each of them legal where it stands. `own`: it came from Gemini, oddities included."""
    frames = read_frames(data)
    check_frames(frames, own=own)
    return frames


def check_frames(frames: list[JsonObject], *, own: bool = False) -> None:
    assert frames, "a stream without a frame"
    assert len({(frame.get("responseId"), frame.get("modelVersion")) for frame in frames if "error" not in frame}) <= 1
    for i, frame in enumerate(frames):
        last = i == len(frames) - 1
        if "error" in frame:
            assert last, "something follows an error"
            assert set(frame["error"]) >= {"code", "message", "status"}
            continue
        assert frame.get("candidates") or "promptFeedback" in frame, frame
        assert last or "usageMetadata" not in frame
        for candidate in frame.get("candidates") or ():
            assert type(candidate["index"]) is int
            assert ("finishReason" in candidate) is last, "a reason to finish stands in the last frame, and only there"
            parts = candidate["content"]["parts"]
            assert parts or own, "Google's `chats` leave out a turn with such a chunk"
            if parts != [{"text": ""}] or not (last or candidate.keys() & {"groundingMetadata", "logprobsResult"}):
                for part in parts:
                    check_part(part, own=own)


def check_part(part: JsonObject, *, own: bool = False) -> None:
    assert part, "a part without data"
    if part.get("text") == "" and not own:
        assert "thoughtSignature" in part or "dragoman" in part, "an empty text"
    call: Any = part.get("functionCall")
    if call is not None:
        assert type(call["name"]) is str
        assert type(call.get("args", {})) is dict
        assert "partialArgs" not in call, "calls are whole"
