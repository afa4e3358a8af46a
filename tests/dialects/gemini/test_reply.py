"""What goes wrong with Gemini replies, both ways."""

from typing import Any

import pytest

from dragoman.convert import convert_reply
from dragoman.dialects.gemini import DIALECT
from dragoman.dialects.gemini.reply import read_time, write_time
from dragoman.jsontypes import JsonObject, copy_json
from dragoman.model.messages import Citation, Part, Reasoning, Refusal, Seal, Text, TokenLogprob, ToolCall
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.notes import Notes
from dragoman.wire import WireReply


def decode(body: JsonObject) -> Reply:
    return DIALECT.decode_reply(WireReply(body=copy_json(body)), Notes())


def encode(reply: Reply) -> tuple[JsonObject, Notes]:
    notes = Notes()
    body: JsonObject = DIALECT.encode_reply(reply, notes).body
    return body, notes


def answer(*parts: Part, finish: Finish | None = None, **fields: Any) -> Reply:
    return Reply(id="r", model="m", choices=(Choice(parts=parts, finish=finish),), **fields)


def said(*parts: JsonObject, **beside: Any) -> JsonObject:
    candidate: JsonObject = {"content": {"parts": list(parts), "role": "model"}, "index": 0, "finishReason": "STOP"}
    return {"candidates": [candidate | beside], "modelVersion": "m", "responseId": "r"}


CALL: JsonObject = {"functionCall": {"name": "look", "args": {"at": "sky"}}}
WEB: JsonObject = {"web": {"uri": "https://a.example/", "title": "A"}}

SPELLINGS: dict[str, JsonObject] = {
    "plain": said({"text": "hi"}),
    "no_index": {"candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP"}]},
    "no_content": {"candidates": [{"finishReason": "OTHER", "index": 0}]},
    "null_content": {"candidates": [{"content": None, "finishReason": "OTHER", "index": 0}]},
    "content_without_parts": {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}]},
    "content_without_role": {"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": 0}]},
    "empty_object": {},
    "no_candidates": {"usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}},
    "empty_candidates": {"candidates": []},
    "blocked": {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"},
    "feedback_without_a_block": said({"text": "a"}) | {"promptFeedback": {"safetyRatings": []}},
    "finish_as_number": said({"text": "a"}, finishReason=1),
    "finish_unknown_number": said({"text": "a"}, finishReason=17),
    "finish_finer": said({"text": "a"}, finishReason="RECITATION", finishMessage="too close"),
    "finish_of_tomorrow": said({"text": "a"}, finishReason="BORED"),
    "finish_unspecified": said({"text": "a"}, finishReason="FINISH_REASON_UNSPECIFIED"),
    "call_without_id_or_args": said({"functionCall": {"name": "f"}}, finishMessage="it called"),
    "signed": said({"text": "hm", "thought": True}, {"text": "a", "thoughtSignature": "c2ln"}, {"text": ""}),
    "code": said({"executableCode": {"code": "1"}, "thoughtSignature": "c2ln"}, {"codeExecutionResult": {}}),
    "picture": said({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "c2ln"}),
    "grounded": said(
        {"text": "A says b."},
        groundingMetadata={
            "webSearchQueries": ["b"],
            "groundingChunks": [WEB],
            "groundingSupports": [
                {
                    "segment": {"endIndex": 9, "text": "A says b."},
                    "groundingChunkIndices": [0],
                    "confidenceScores": [0.5],
                }
            ],
        },
    ),
    "recited": said({"text": "to be"}, citationMetadata={"citations": [{"endIndex": 5, "uri": "https://w.example/"}]}),
    "logprobs": said(
        {"text": "a"},
        avgLogprobs=-0.5,
        logprobsResult={
            "chosenCandidates": [{"token": "a", "tokenId": 5, "logProbability": -0.5}],
            "topCandidates": [{"candidates": [{"token": "b", "tokenId": 6, "logProbability": -1}]}],
            "logProbabilitySum": -0.5,
        },
    ),
    "logprobs_that_do_not_fit": said({"text": "a"}, logprobsResult={"chosenCandidates": [{"token": "a"}]}),
    "usage_with_tools": said({"text": "a"})
    | {
        "usageMetadata": {
            "promptTokenCount": 10,
            "cachedContentTokenCount": 4,
            "toolUsePromptTokenCount": 100,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 117,
            "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 3}, {"modality": "TEXT", "tokenCount": 7}],
            "serviceTier": "standard",
        }
    },
    "usage_that_does_not_add_up": said({"text": "a"})
    | {"usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 9}},
    "usage_without_total": said({"text": "a"}) | {"usageMetadata": {"candidatesTokenCount": 1}},
    "usage_of_the_cache_alone": said({"text": "a"}) | {"usageMetadata": {"cachedContentTokenCount": 9}},
    "usage_with_too_much_cached": said({"text": "a"})
    | {"usageMetadata": {"promptTokenCount": 1, "cachedContentTokenCount": 9, "totalTokenCount": 1}},
    "usage_empty": said({"text": "a"}) | {"usageMetadata": {}},
    "usage_of_the_tier_alone": said({"text": "a"}) | {"usageMetadata": {"serviceTier": "flex"}},
    "nulls_of_a_dumped_object": {
        "candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}, "index": None, "finishReason": None}],
        "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": None},
        "responseId": None,
    },
    "no_candidates_but_null": {"candidates": None},
    "times": said({"text": "a"}) | {"createTime": "2026-04-02T17:03:50.399550Z"},
    "times_odd": said({"text": "a"}) | {"createTime": "2026-04-02T19:03:50.123456789+02:00"},
    "two": {
        "candidates": [
            {"content": {"parts": [{"text": "a"}], "role": "model"}, "index": 0, "finishReason": "STOP"},
            {"content": {"parts": [CALL], "role": "model"}, "index": 1, "finishReason": "STOP", "safetyRatings": []},
        ]
    },
}


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_reply_is_written_back_as_it_was_spelled(body: JsonObject) -> None:
    written, notes = encode(decode(body))
    assert written == body
    assert not notes.items


def test_stop_beside_a_call_is_the_caller_s_turn() -> None:
    finish = decode(said({"text": "wait"}, CALL)).choices[0].finish
    assert finish == Finish(reason="tool_call")


def test_the_limit_beside_a_call_stays_the_limit() -> None:
    finish = decode(said(CALL, finishReason="MAX_TOKENS")).choices[0].finish
    assert finish == Finish(reason="length")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("SAFETY", "filter"),
        ("SPII", "filter"),
        ("MODEL_ARMOR", "filter"),
        ("IMAGE_SAFETY", "filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
        ("UNEXPECTED_TOOL_CALL", "malformed"),
        ("CONTINUATION", "pause"),
        ("NO_IMAGE", "other"),
        ("LANGUAGE", "other"),
        ("BORED", "other"),
    ],
)
def test_no_reason_but_stop_is_a_stop(word: str, reason: FinishReason) -> None:
    finish = decode({"candidates": [{"finishReason": word}]}).choices[0].finish
    assert finish is not None
    assert finish.reason == reason


def test_a_blocked_prompt_is_a_filtered_answer() -> None:
    reply = decode({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}})
    assert [choice.parts for choice in reply.choices] == [()]
    assert reply.choices[0].finish == Finish(reason="filter", message="the prompt was blocked: SAFETY")
    assert reply.usage is not None
    assert reply.usage.input == 5


def test_calls_without_ids_get_one_that_bears_the_reply_s() -> None:
    first, second = decode(said(CALL, CALL)).choices[0].parts
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.id, second.id) == ("call_r_0", "call_r_1")


def test_counts_are_disjoint() -> None:
    usage = decode(SPELLINGS["usage_with_tools"]).usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (106, 4, 5, 2)
    assert usage.input_audio == 3


def test_counts_of_other_dialects_add_up() -> None:
    usage = Usage(input=10, cache_read=4, cache_write=3, output=5, reasoning=2, output_audio=1)
    body, notes = encode(answer(Text(text="a"), usage=usage))
    assert body["usageMetadata"] == {
        "promptTokenCount": 17,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 2,
        "totalTokenCount": 24,
        "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 1}],
    }
    assert [note.where for note in notes] == ["/usage/cache_write", "/usage/input"]


# ---------------------------------------------------------------- beside the text


def test_spans_are_bytes_over_there_and_characters_here() -> None:
    text = "héllo wörld, says 한국"
    part = Text(text=text, citations=(Citation(url="https://a.example/", title="A", start=6, end=11),))
    body, notes = encode(answer(part))
    (support,) = body["candidates"][0]["groundingMetadata"]["groundingSupports"]
    assert support == {
        "segment": {"startIndex": 7, "endIndex": 13, "text": "wörld"},
        "groundingChunkIndices": [0],
    }
    assert decode(body).choices[0].parts == (part,)
    assert not notes.items


def test_a_span_is_found_wherever_the_text_stands() -> None:
    thought: JsonObject = {"text": "hm", "thought": True}
    support = {"segment": {"startIndex": 3, "endIndex": 5, "text": "de"}, "groundingChunkIndices": [0]}
    metadata = {"groundingChunks": [WEB], "groundingSupports": [support]}
    _, first, second = (
        decode(said(thought, {"text": "abc"}, {"text": "def"}, groundingMetadata=metadata)).choices[0].parts
    )
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert not first.citations
    assert second.citations == (Citation(url="https://a.example/", title="A", start=0, end=2),)


@pytest.mark.parametrize(
    "segment",
    [
        {"startIndex": 1, "endIndex": 2, "text": "é"},  # half a character
        {"endIndex": 99, "text": "é"},
        {"endIndex": 2, "text": "something else"},
        {"startIndex": 2, "endIndex": 1},
    ],
)
def test_a_span_that_is_not_there_is_no_citation_but_stays_in_the_metadata(segment: JsonObject) -> None:
    metadata = {"groundingChunks": [WEB], "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}]}
    choice = decode(said({"text": "é"}, groundingMetadata=metadata)).choices[0]
    assert choice.parts == (Text(text="é"),)
    assert choice.extras["gemini"]["groundingMetadata"] == metadata


def test_logprobs_are_read_and_written() -> None:
    tokens = (TokenLogprob(token="a", logprob=-0.5, top=(TokenLogprob(token="b", logprob=-1.0),)),)
    body, notes = encode(answer(Text(text="a", logprobs=tokens)))
    assert decode(body).choices[0].parts == (Text(text="a", logprobs=tokens),)
    assert not notes.items


# ---------------------------------------------------------------- foreign answers


@pytest.mark.parametrize(
    ("finish", "word", "noted"),
    [
        (Finish(reason="stop"), "STOP", []),
        (Finish(reason="sequence", sequence="END"), "STOP", ["reason", "sequence"]),
        (Finish(reason="context"), "MAX_TOKENS", ["reason"]),
        (Finish(reason="refusal", message="no"), "SAFETY", ["reason"]),
        (Finish(reason="pause"), "CONTINUATION", []),
        (Finish(reason="tool_call"), "STOP", ["reason"]),
    ],
)
def test_a_reason_gemini_lacks_is_noted(finish: Finish, word: str, noted: list[str]) -> None:
    body, notes = encode(answer(Text(text="a"), finish=finish))
    assert body["candidates"][0]["finishReason"] == word
    assert [note.where.rpartition("/")[2] for note in notes] == noted


def test_a_foreign_seal_goes_to_the_client_beside_its_part_and_comes_back() -> None:
    seal = Seal(origin="anthropic", value="sig")
    body, _ = encode(answer(Reasoning(text="hm", summary=True, seal=seal), Text(text="a")))
    (thought, _) = body["candidates"][0]["content"]["parts"]
    assert thought["dragoman"] == {"seal": {"origin": "anthropic", "value": "sig"}}
    assert "thoughtSignature" not in thought
    part = decode(body).choices[0].parts[0]
    assert isinstance(part, Reasoning)
    assert part.seal == seal


def test_a_refusal_is_text() -> None:
    body, notes = encode(answer(Refusal(text="no")))
    assert body["candidates"][0]["content"]["parts"] == [{"text": "no"}]
    assert [note.kind for note in notes] == ["altered"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1794778233.5, "2026-11-15T21:30:33.500000Z"),
        (1794778233.0281649, "2026-11-15T21:30:33.028164900Z"),
    ],
)
def test_times_keep_their_last_digit(seconds: float, text: str) -> None:
    assert write_time(seconds) == text
    assert read_time(text) == seconds


def test_an_unreadable_time_stays_as_it_is() -> None:
    body = said({"text": "a"}) | {"createTime": "yesterday"}
    assert decode(body).created is None
    assert encode(decode(body))[0] == body


def test_counts_of_text_alone_repeat_the_sum_and_need_no_note() -> None:
    counts = {"promptTokenCount": 3, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}]}
    parts = {"role": "model", "parts": [{"text": "hi"}]}
    reply = {"candidates": [{"content": parts, "finishReason": "STOP"}], "usageMetadata": counts}
    notes = convert_reply(reply, to="anthropic", source="gemini").notes
    assert [note.where for note in notes if "Details" in note.where] == []
