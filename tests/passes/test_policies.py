"""What a target lacks, under every policy: it is asked for in another way, left out, or refused. A note tells which."""

from typing import Any, get_args

import pytest

from dragoman.errors import LossError
from dragoman.model.messages import Image, Text
from dragoman.model.request import CustomTool, OutputFormat, Request, ServerTool, ToolChoice
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Feature, MediaForms, Policy, Profile
from dragoman.upstream.profiles import profile_for
from tests.passes.short_forms import assistant, talk, tool, user

EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = (tool("look", EMPTY), tool("see", EMPTY))
FORCED = ToolChoice(mode="required")
PICTURE = Image(data="iVBORw0KGgo=", media_type="image/png")
SEARCH = ServerTool(dialect="anthropic", body={"type": "web_search_20250305", "name": "web_search"})
# Requests that want a feature; the note of each policy that goes on.
WANTED: dict[Feature, tuple[Request, str, str]] = {
    "choices": (talk(user("q"), choices=2), "altered /choices", "dropped /choices"),
    "json": (talk(user("q"), output=OutputFormat(type="json")), "altered /output", "dropped /output"),
    "json_schema": (
        talk(user("q"), output=OutputFormat(type="json_schema", name="n", schema=EMPTY)),
        "altered /output",
        "dropped /output",
    ),
    "tool_choice": (
        talk(user("q"), tools=TOOLS, tool_choice=FORCED),
        "altered /tool_choice",
        "dropped /tool_choice",
    ),
    "named_choice": (
        talk(user("q"), tools=TOOLS, tool_choice=ToolChoice(mode="required", names=("look",))),
        "altered /tool_choice/names",
        "dropped /tool_choice/names",
    ),
    "forced_choice": (
        talk(user("q"), tools=TOOLS, tool_choice=FORCED),
        "altered /tool_choice",
        "altered /tool_choice",
    ),
    "parallel_off": (
        talk(user("q"), tools=TOOLS, parallel_calls=False),
        "dropped /parallel_calls",
        "dropped /parallel_calls",
    ),
    "stop": (talk(user("q"), stop=("END",)), "altered /stop", "dropped /stop"),
    "custom_tools": (talk(user("q"), tools=(CustomTool(name="c"), *TOOLS)), "altered /tools/0", "dropped /tools/0"),
    "prefill": (talk(user("q"), assistant("so")), "invented /messages", "dropped /messages/1"),
    "media": (talk(user("q", PICTURE)), "altered /messages/0/parts/1", "dropped /messages/0/parts/1"),
    "server_tools": (talk(user("q"), tools=(SEARCH, *TOOLS)), "dropped /tools/0", "dropped /tools/0"),
}


def without(feature: Feature, policy: Policy) -> Profile:
    lacks: dict[str, Any] = {"lacks": (feature,)}
    if feature == "media":
        lacks = {"media": MediaForms(images=())}
    elif feature == "prefill":
        lacks = {"prefill": False}
    elif feature == "forced_choice":
        lacks = {"forced_choice": "no"}
    return Profile(kind="x", dialect="openai_chat", policy={feature: policy}, **lacks)


def test_every_feature_is_tried() -> None:
    assert set(WANTED) == set(get_args(Feature))


@pytest.mark.parametrize("feature", WANTED)
@pytest.mark.parametrize("policy", ["emulate", "drop"])
def test_what_a_target_lacks_has_one_note(feature: Feature, policy: Policy) -> None:
    request, emulated, dropped = WANTED[feature]
    notes = Notes()
    assert legalise(request, without(feature, policy), notes) != request
    assert [f"{note.kind} {note.canonical}" for note in notes] == [emulated if policy == "emulate" else dropped]


@pytest.mark.parametrize("feature", WANTED)
def test_what_a_target_lacks_can_be_refused(feature: Feature) -> None:
    with pytest.raises(LossError):
        legalise(WANTED[feature][0], without(feature, "refuse"), Notes())


@pytest.mark.parametrize("feature", WANTED)
def test_what_a_target_has_is_left_as_it_is(feature: Feature) -> None:
    notes = Notes()
    assert legalise(WANTED[feature][0], Profile(kind="x", dialect="openai_chat"), notes).messages
    assert [note.canonical for note in notes if note.kind != "repaired"] == []


def test_a_picture_over_the_limit_of_bytes_becomes_a_line_of_text() -> None:
    """Anthropic takes ten megabytes of base64. A larger picture stays in the history of an agent for good."""
    large = Image(data="A" * 10_485_764, media_type="image/png")
    notes = Notes()
    sent = legalise(talk(user(large, PICTURE)), profile_for("anthropic", "claude-opus-5"), notes)
    assert [type(part) for part in sent.messages[0].parts] == [Text, Image]
    assert [(note.kind, note.where) for note in notes] == [("altered", "/messages/0/parts/0")]
