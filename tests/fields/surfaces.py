"""What each dialect's vendor publishes as types: requests, replies and stream events, ready to be walked.

Where the wire differs from the package (arguments that travel as headers, events a package swallows, fields only the
server knows) the difference stands here as data, each with where it was seen.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

from tests.fields.inventory import Entry, Walk, fields_of, walk

SECTIONS = ("request", "reply", "stream")


class Surface(NamedTuple):
    """One dialect's fields by section."""

    name: str
    package: str  # with its version
    sections: dict[str, dict[str, Entry]]


# ---------------------------------------------------------------- OpenAI

# deltas of custom tools, padding and in-stream errors are recorded, and not in the chunk type
CHAT_STREAM = (
    "choices[].delta.tool_calls[].custom.name",
    "choices[].delta.tool_calls[].custom.input",
    "obfuscation",
    "error.message",
    "error.type",
    "error.param",
    "error.code",
)


def _openai_chat() -> dict[str, Walk]:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    return {
        "request": Walk((("", CompletionCreateParamsStreaming),)),
        "reply": Walk((("", ChatCompletion),)),
        "stream": Walk((("", ChatCompletionChunk),), add=CHAT_STREAM),
    }


# recorded, and not in the package's union: a patch being written, the nested form of the error event
_PATCH = "response.apply_patch_call_operation_diff"
RESPONSES_STREAM = (
    *(f"<{_PATCH}.delta>.{key}" for key in ("type", "sequence_number", "item_id", "output_index", "delta")),
    f"<{_PATCH}.delta>.obfuscation",
    *(f"<{_PATCH}.done>.{key}" for key in ("type", "sequence_number", "item_id", "output_index", "diff")),
    *(f"<error>.error.{key}" for key in ("type", "code", "message", "param")),
)


def _openai_responses() -> dict[str, Walk]:
    from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    return {
        "request": Walk((("", ResponseCreateParamsStreaming),)),
        # the same classes stand in `instructions`, which comes first, and matter less there
        "reply": Walk(
            (("output", list[ResponseOutputItem]), ("", Response)), leave_out={Response: frozenset({"output"})}
        ),
        "stream": Walk((("", ResponseStreamEvent),), elsewhere=frozenset({Response}), add=RESPONSES_STREAM),
    }


# ---------------------------------------------------------------- Anthropic

# keyword arguments the package sends as headers
ANTHROPIC_HEADERS = {
    "user_profile_id": "header:anthropic-user-profile-id",
    "workspace_id": "header:anthropic-workspace-id",
    "betas[]": "header:anthropic-beta",
}
# API version 2023-06-01 still takes them; the package, which speaks a later one, has forgotten them.
# output_format is the older place of output_config.format (beta structured-outputs-2025-11-13)
ANTHROPIC_REQUEST = ("temperature", "top_p", "top_k")
# the package consumes these events itself
ANTHROPIC_STREAM = (
    "<ping>.type",
    "<error>.type",
    "<error>.error.type",
    "<error>.error.message",
    "<error>.request_id",
)


def _anthropic() -> dict[str, Walk]:
    from anthropic.types import JSONOutputFormatParam, Message, RawMessageStreamEvent
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return _anthropic_walks(MessageCreateParamsStreaming, JSONOutputFormatParam, Message, RawMessageStreamEvent)


def _anthropic_beta() -> dict[str, Walk]:
    from anthropic.types.beta import BetaJSONOutputFormatParam, BetaMessage, BetaRawMessageStreamEvent
    from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming

    return _anthropic_walks(
        MessageCreateParamsStreaming, BetaJSONOutputFormatParam, BetaMessage, BetaRawMessageStreamEvent
    )


def _anthropic_walks(params: object, output: object, message: object, event: object) -> dict[str, Walk]:
    return {
        "request": Walk(
            (("", params), ("output_format", output)),
            add=(*ANTHROPIC_REQUEST, *ANTHROPIC_HEADERS.values()),
            drop=tuple(ANTHROPIC_HEADERS),
        ),
        "reply": Walk((("", message),)),
        "stream": Walk((("", event),), elsewhere=frozenset({message}), add=ANTHROPIC_STREAM),
    }


# ---------------------------------------------------------------- Gemini

# The package's flat config is split on the wire: these stand beside `contents`, the others in `generationConfig`.
GEMINI_TOP = {
    "systemInstruction",
    "safetySettings",
    "tools",
    "toolConfig",
    "labels",
    "cachedContent",
    "serviceTier",
    "continuationToken",
    "store",
    "modelArmorConfig",
}
GEMINI_RENAMED = {"modelSelectionConfig": "generationConfig.modelConfig", "generationOutputConfig": "outputConfig"}
GEMINI_PACKAGE_ONLY = {"httpOptions", "shouldReturnHttpResponse", "automaticFunctionCalling", "automaticContinuation"}
GEMINI_ERROR = ("error.code", "error.message", "error.status", "error.details[]")


def _gemini() -> dict[str, Walk]:
    from google.genai import types

    wire_types = {
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "responseSchema": types.Schema,
        "speechConfig": types.SpeechConfig,
    }
    roots: list[tuple[str, object]] = [("contents", list[types.Content])]
    for field in fields_of(types.GenerateContentConfig):
        if field.name in GEMINI_PACKAGE_ONLY:
            continue
        inside = field.name if field.name in GEMINI_TOP else f"generationConfig.{field.name}"
        roots.append((GEMINI_RENAMED.get(field.name, inside), wire_types.get(field.name, field.type)))
    answer = (("", types.GenerateContentResponse),)
    hidden = {
        types.GenerateContentResponse: frozenset({"sdkHttpResponse", "automaticFunctionCallingHistory", "parsed"})
    }
    return {
        "request": Walk(tuple(roots)),
        "reply": Walk(answer, leave_out=hidden),
        "stream": Walk(answer, leave_out=hidden, add=GEMINI_ERROR),
    }


# ---------------------------------------------------------------- Ollama

# what the server's own structs have and the package does not model (server read in August 2026)
OLLAMA_REQUEST = ("truncate", "shift", "_debug_render_only", "options.min_p", "options.draft_num_predict")
OLLAMA_CHAT_REQUEST = (
    "messages[].tool_call_id",
    "messages[].tool_calls[].id",
    "messages[].tool_calls[].function.index",
    "tools[].items",
    "tools[].function.parameters.properties{}.anyOf[]",
    "tools[].function.parameters.properties{}.properties{}",
    "tools[].function.parameters.properties{}.required[]",
)
OLLAMA_REPLY = (
    "remote_model",
    "remote_host",
    "logprobs[].bytes[]",
    "logprobs[].top_logprobs[].bytes[]",
    "_debug_info.rendered_template",
    "_debug_info.image_count",
)
OLLAMA_CHAT_REPLY = (*OLLAMA_REPLY, "message.tool_calls[].id", "message.tool_calls[].function.index")
OLLAMA_GENERATE_REPLY = (*OLLAMA_REPLY, "tool_calls[].id", "tool_calls[].function.index")


def _ollama_chat() -> dict[str, Walk]:
    from ollama import _types

    images = {_types.Image: str}  # they travel as base64
    return {
        "request": Walk((("", _types.ChatRequest),), instead=images, add=OLLAMA_REQUEST + OLLAMA_CHAT_REQUEST),
        "reply": Walk((("", _types.ChatResponse),), instead=images, add=OLLAMA_CHAT_REPLY),
        "stream": Walk((("", _types.ChatResponse),), instead=images, add=(*OLLAMA_CHAT_REPLY, "error")),
    }


def _ollama_generate() -> dict[str, Walk]:
    from ollama import _types

    images = {_types.Image: str}
    answer = (("", _types.GenerateResponse), ("tool_calls", list[_types.Message.ToolCall]))  # the server has calls too
    return {
        "request": Walk((("", _types.GenerateRequest),), instead=images, add=OLLAMA_REQUEST),
        "reply": Walk(answer, instead=images, add=OLLAMA_GENERATE_REPLY),
        "stream": Walk(answer, instead=images, add=(*OLLAMA_GENERATE_REPLY, "error")),
    }


# ---------------------------------------------------------------- all of them

# A dialect's walks, and the name of the sections' second half where it has two doors.
WALKS: dict[str, tuple[str, dict[str, Callable[[], dict[str, Walk]]]]] = {
    "openai_chat": ("openai", {"": _openai_chat}),
    "openai_responses": ("openai", {"": _openai_responses}),
    "anthropic": ("anthropic", {"": _anthropic, "beta": _anthropic_beta}),
    "gemini": ("google-genai", {"": _gemini}),
    "ollama": ("ollama", {"": _ollama_chat, "generate": _ollama_generate}),
}


@cache
def surface(dialect: str) -> Surface:
    """A dialect's fields. Anthropic's beta is its general surface and more: the two are listed as one."""
    package, doors = WALKS[dialect]
    sections: dict[str, dict[str, Entry]] = {}
    for door, walks in doors.items():
        for section, what in walks().items():
            name = f"{door} {section}" if door == "generate" else section
            found = walk(what)
            sections[name] = {**found, **sections.get(name, {})}
    return Surface(dialect, f"{package} {version(package)}", sections)
