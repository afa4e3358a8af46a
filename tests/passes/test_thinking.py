"""Effort, budget, level and adaptive as one table, both ways; media types; and what a seal is bound to."""

import base64

import pytest

from dragoman.dialects import find_dialect
from dragoman.errors import LossError
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Document, Image, Reasoning, Seal
from dragoman.model.request import ReasoningSetting, Request
from dragoman.notes import Notes
from dragoman.passes.media import fit_media, sniff
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.passes.reasoning import is_readable
from dragoman.passes.thinking import fit_thinking
from dragoman.upstream.profiles import profile_for
from dragoman.wire import WireRequest
from tests.passes.short_forms import assistant, parts_of, talk, user
from tests.passes.wires import write

Said = tuple[str | None, str | None, int | None]  # mode, effort, budget

TABLE: list[tuple[str, str, Said, Said]] = [
    ("anthropic", "claude-sonnet-4-5", ("auto", "minimal", None), ("on", None, 1024)),
    ("anthropic", "claude-sonnet-4-5", ("auto", "low", None), ("on", None, 2048)),
    ("anthropic", "claude-sonnet-4-5", ("auto", "medium", None), ("on", None, 8192)),
    ("anthropic", "claude-sonnet-4-5", ("auto", "high", None), ("on", None, 16384)),
    ("anthropic", "claude-sonnet-4-5", ("auto", "xhigh", None), ("on", None, 24576)),
    ("anthropic", "claude-sonnet-4-5", ("on", None, 100), ("on", None, 1024)),
    ("anthropic", "claude-opus-4-5", ("auto", "high", None), ("on", "high", 16384)),
    ("anthropic", "claude-opus-4-6", ("on", None, 2048), ("on", None, 2048)),
    ("anthropic", "claude-opus-4-6", ("auto", "xhigh", None), ("auto", "high", None)),
    ("anthropic", "claude-opus-4-7", ("on", None, 1024), ("auto", "low", None)),
    ("anthropic", "claude-opus-4-7", ("on", None, 10_000), ("auto", "medium", None)),
    ("anthropic", "claude-opus-4-7", ("auto", "minimal", None), ("auto", "low", None)),
    ("anthropic", "claude-opus-4-7", ("off", None, None), ("off", None, None)),
    ("anthropic", "claude-opus-5-5", ("off", None, None), ("auto", "low", None)),
    ("openai", "gpt-5", ("on", None, 20_000), ("on", "high", None)),
    ("openai", "o3", ("auto", "xhigh", None), ("auto", "high", None)),
    ("openai", "o3", ("off", None, None), ("auto", "low", None)),
    ("gemini", "gemini-2.5-pro", ("auto", "medium", None), ("on", None, 8192)),
    ("gemini", "gemini-2.5-pro", ("off", None, None), ("on", None, 128)),
    ("gemini", "gemini-2.5-flash", ("off", None, None), ("off", None, None)),
    ("gemini", "gemini-2.5-flash", ("on", None, 90_000), ("on", None, 24576)),
    ("gemini", "gemini-3-pro", ("auto", "minimal", None), ("auto", "low", None)),
    ("gemini", "gemini-3-flash", ("auto", "minimal", None), ("auto", "minimal", None)),
    ("gemini", "gemini-3-pro", ("off", None, None), ("auto", "low", None)),
    ("gemini", "gemini-2.5-flash", ("auto", None, None), ("auto", None, None)),
    ("gemini", "gemini-2.5-pro", ("on", None, -1), ("on", None, -1)),
    ("anthropic", "claude-sonnet-4-5", ("on", None, -1), ("on", None, 8192)),
    ("anthropic", "claude-opus-4-6", ("on", None, -1), ("auto", None, None)),
    ("anthropic", "claude-opus-5-5", (None, None, -1), ("auto", None, None)),
    ("openai", "gpt-5", ("on", None, -1), ("auto", None, None)),
    ("openai", "gpt-5.1", ("auto", None, None), ("auto", "medium", None)),
    ("openai", "gpt-5.4", ("on", None, None), ("on", "medium", None)),
    ("ollama", "qwen3", ("auto", "xhigh", None), ("auto", "high", None)),
    ("deepseek", "deepseek-v4", ("auto", "medium", None), ("auto", "low", None)),
]


@pytest.mark.parametrize(("kind", "model", "asked", "told"), TABLE, ids=[f"{r[1]} {r[2]}" for r in TABLE])
def test_case_51_what_is_asked_is_told_in_the_models_words(kind: str, model: str, asked: Said, told: Said) -> None:
    mode, effort, budget = asked
    setting = ReasoningSetting(mode=mode, effort=effort, budget=budget)  # type: ignore[arg-type]
    request = talk(user("q"), model=model, reasoning=setting)
    notes = Notes()
    profile = profile_for(kind, model)
    fitted = fit_thinking(request, profile, notes)
    assert fitted.reasoning is not None
    assert (fitted.reasoning.mode, fitted.reasoning.effort, fitted.reasoning.budget) == told
    assert bool(notes.items) == (asked != told)
    assert fit_thinking(fitted, profile, Notes()) is fitted


@pytest.mark.parametrize(
    ("kind", "model", "thinking", "said"),
    [
        ("openai", "gpt-5.1", {"type": "adaptive"}, {"reasoning": {"effort": "medium"}}),
        ("azure", "gpt-5.2", {"type": "adaptive"}, {"reasoning": {"effort": "medium"}}),
        ("ollama", "qwen3", {"type": "adaptive"}, {"think": True}),
        ("openrouter", "anthropic/claude-opus-4-7", {"type": "adaptive"}, {"reasoning_effort": "medium"}),
        ("openrouter", "anthropic/x", {"type": "enabled", "budget_tokens": 2000}, {"reasoning_effort": "low"}),
        ("vllm", "qwen3", {"type": "adaptive"}, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("llamacpp", "qwen3", {"type": "adaptive"}, {"chat_template_kwargs": {"enable_thinking": True}}),
    ],
)
def test_a_wish_to_think_is_said_to_a_model_that_does_not_think_by_itself(
    kind: str, model: str, thinking: JsonObject, said: JsonObject
) -> None:
    """Claude Code asks the newest models for adaptive thinking: no effort and no budget."""
    body = {"model": model, "max_tokens": 9000, "thinking": thinking, "messages": [{"role": "user", "content": "q"}]}
    request = find_dialect("anthropic").decode_request(WireRequest(body=body, path="/v1/messages"), Notes())
    wire = write(request, profile_for(kind, model), Notes())
    assert {key: wire.get(key) for key in said} == said
    assert not {"reasoning", "reasoning_effort"} <= wire.keys()


def test_a_model_without_a_setting_for_thinking_gets_none() -> None:
    notes = Notes()
    request = talk(user("q"), model="grok-4", reasoning=ReasoningSetting(effort="high"))
    assert fit_thinking(request, profile_for("xai", "grok-4"), notes).reasoning is None
    assert [(n.kind, n.where) for n in notes] == [("dropped", "/reasoning")]


# ---------------------------------------------------------------- seals


@pytest.mark.parametrize(
    ("bound", "seal", "readable"),
    [
        ("dialect", Seal(origin="anthropic", value="s"), True),
        ("dialect", Seal(origin="gemini", value="s"), False),
        ("dialect", Seal(origin="anthropic", value="s", model="other"), True),
        ("model", Seal(origin="anthropic", value="s", model="other"), False),
        ("model", Seal(origin="anthropic", value="s", model="m"), True),
        ("model", Seal(origin="anthropic", value="s"), True),
        ("upstream", Seal(origin="anthropic", value="s", upstream="here"), True),
        ("upstream", Seal(origin="anthropic", value="s", upstream="there"), False),
    ],
)
def test_case_9_a_seal_goes_back_only_to_who_can_read_it(bound: str, seal: Seal, readable: bool) -> None:
    profile = Profile(dialect="anthropic", upstream="here", seals_bound_to=bound)  # type: ignore[arg-type]
    assert is_readable(seal, "m", profile) is readable


@pytest.mark.parametrize(
    ("dialect", "form", "readable"),
    [
        ("openai_responses", "encrypted", True),
        ("openai_responses", "signature", False),
        ("anthropic", "redacted", True),
        ("anthropic", "encrypted", False),
        ("ollama", "signature", False),
    ],
)
def test_a_seal_in_a_form_that_its_origin_does_not_have_is_not_read_there(
    dialect: str, form: str, readable: bool
) -> None:
    """A client may send anything back as a seal. An encoder would leave the thought out, and the turn may be empty."""
    seal = Seal(origin=dialect, value="c2VhbA==", form=form)
    assert is_readable(seal, "m", find_dialect(dialect).profile) is readable


def test_case_9_a_foreign_thought_is_left_out_and_an_own_one_is_the_same_object() -> None:
    own = Reasoning(text="hm", seal=Seal(origin="anthropic", value="mine"))
    foreign = Reasoning(text="hm", seal=Seal(origin="gemini", value="theirs"))
    request = talk(user("q"), assistant(own, foreign, "ok"), user("and"), model="claude-opus-4-8")
    notes = Notes()
    legal = legalise(request, profile_for("anthropic", "claude-opus-4-8"), notes)
    (kept,) = parts_of(legal, Reasoning)
    assert kept is own
    assert [(n.kind, n.where) for n in notes] == [("dropped", "/messages/1/parts/1")]


# ---------------------------------------------------------------- media


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", "audio/wav"),
        (b"%PDF-1.7", "application/pdf"),
        (b"ID3\x04", "audio/mpeg"),
        (b"just text", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_what_it_is(head: bytes, kind: str | None) -> None:
    assert sniff(base64.b64encode(head + b"\x00" * 40 if head else head).decode()) == kind


def test_what_is_no_base64_is_nothing_known() -> None:
    assert sniff("!!!") is None
    assert sniff("ü" * 80) is None


def _with(part: Image | Document) -> Request:
    return talk(user("look", part))


def test_a_text_document_is_said_as_text_where_there_are_no_documents() -> None:
    notes = Notes()
    fitted = fit_media(_with(Document(text="words", name="a.txt")), profile_for("ollama", "m"), notes)
    assert fitted.messages[0] == user("look", "[document a.txt]\nwords")
    assert [n.kind for n in notes] == ["altered"]


@pytest.mark.parametrize(("policy", "parts"), [("drop", 1), ("emulate", 2)])
def test_case_136_a_picture_that_cannot_be_seen_is_dropped_or_told(policy: str, parts: int) -> None:
    profile = profile_for("deepseek", "deepseek-v4", overrides={"policy": {"media": policy}})
    fitted = fit_media(_with(Image(url="https://ex.org/a.png")), profile, Notes())
    assert len(fitted.messages[0].parts) == parts


def test_case_136_or_refused_with_its_place() -> None:
    profile = profile_for("deepseek", "deepseek-v4", overrides={"policy": {"media": "refuse"}})
    with pytest.raises(LossError, match="/messages/0/parts/1"):
        fit_media(_with(Image(url="https://ex.org/a.png")), profile, Notes())
