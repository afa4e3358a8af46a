"""The other services of an API: token counts, model lists, embeddings and speech.

A dialect has a codec for each service that its servers offer, and None for the others. The values that the codecs
exchange are here too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from dragoman.errors import DecodeError, UpstreamError
from dragoman.failure import Failure
from dragoman.jsontypes import Json, JsonObject, kind_of
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.wire import WireRequest


class CountCodec(Struct, frozen=True, kw_only=True):
    """Counts the tokens of a request."""

    path: str  # of the upstream's counter; `{model}` is replaced by the model
    decode_request: Callable[[WireRequest, Notes], Request]
    encode_request: Callable[[Request, Notes], WireRequest]
    decode_reply: Callable[[Json], int]
    encode_reply: Callable[[int], JsonObject]


class ListedModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model of a list. None and "" are what is not known: nothing is made up."""

    name: str
    owner: str = ""
    created: float | None = None  # seconds since 1970
    window: int | None = None  # tokens of prompt and answer together
    max_input: int | None = None  # tokens
    max_output: int | None = None
    vision: bool | None = None
    thinking: bool | None = None
    tools: bool | None = None
    family: str = ""
    parameters: int | None = None
    parameter_size: str = ""  # as its server writes it: 3.2B
    quantization: str = ""
    embedding_length: int | None = None
    size_bytes: int | None = None
    digest: str = ""

    @property
    def reads(self) -> int | None:
        """How many tokens of a prompt it takes, as far as that is known."""
        return self.window if self.max_input is None else self.max_input


class ModelDetails(Struct, frozen=True, kw_only=True):
    """Asks a server about one model, where its list does not say enough."""

    path: str  # from the root of the server, not below the version
    wanted: Callable[[ListedModel], bool]  # by what the list said of it
    encode: Callable[[str], JsonObject] | None  # from the model's name; None: a GET
    decode: Callable[[Json, ListedModel], ListedModel]


class ModelsCodec(Struct, frozen=True, kw_only=True):
    """Lists the models of a server."""

    path: str  # of the upstream's list; its query asks for all models at once
    decode: Callable[[Json], list[ListedModel]]
    encode: Callable[[Sequence[ListedModel], str], JsonObject]  # the text is the query of the client's request
    encode_one: Callable[[ListedModel], JsonObject]
    details: ModelDetails | None = None


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    model: str
    inputs: list[Any]  # texts, or lists of token numbers
    size: int | None = None  # numbers in a vector
    form: str = ""  # the form of answer that the client reads, as a word of its dialect


class Vectors(Struct, frozen=True, kw_only=True):
    rows: list[list[float]]
    model: str
    tokens: int = 0


class EmbeddingsCodec(Struct, frozen=True, kw_only=True):
    decode_request: Callable[[WireRequest], EmbeddingRequest]
    encode_request: Callable[[EmbeddingRequest], WireRequest]
    decode_reply: Callable[[Json, str], Vectors]  # the text is the model that was asked
    encode_reply: Callable[[Vectors, EmbeddingRequest], JsonObject]


class SpeechCodec(Struct, frozen=True, kw_only=True):
    """Turns text into speech. Requests have the form of OpenAI's /audio/speech."""

    encode_request: Callable[[str, JsonObject], WireRequest]  # the text is the model
    decode_reply: Callable[[Json], tuple[bytes, str]] | None = None  # sound and its type; None: the body is the sound


# OpenAI's voices, and the ones of Gemini that sound most like them.
VOICES = {"alloy": "Kore", "echo": "Puck", "fable": "Charon", "onyx": "Fenrir", "nova": "Aoede", "shimmer": "Leda"}


# ---------------------------------------------------------------- readers that several dialects share


def read_count(body: Json, key: str) -> int:
    count = body.get(key) if type(body) is dict else None
    if type(count) is not int:
        raise DecodeError(f"expected whole number, found {kind_of(count)}", key)
    return count


def read_models(body: Json, rows: str, key: str, read: Callable[[str, JsonObject], ListedModel]) -> list[ListedModel]:
    """The models of a list, by name without the prefix `models/` of some lists. A row without a name is no model."""
    listed = body.get(rows) if type(body) is dict else body
    if type(listed) is not list:
        raise DecodeError(f"expected array, found {kind_of(listed)}", rows)
    named = [(row.get(key), row) for row in listed if type(row) is dict]
    return [read(name.removeprefix("models/"), row) for name, row in named if type(name) is str]


def find_number(row: Json, *paths: str) -> int | None:
    """The first of these members that is a number of tokens: `meta.n_ctx` is a member of a member."""
    return next((n for path in paths if type(n := find_member(row, path)) is int and n > 0), None)


def find_flag(row: Json, *paths: str) -> bool | None:
    return next((flag for path in paths if type(flag := find_member(row, path)) is bool), None)


def find_text(row: Json, path: str) -> str:
    found = find_member(row, path)
    return found if type(found) is str else ""


def find_member(row: Json, path: str) -> Json:
    for step in path.split("."):
        row = row.get(step) if type(row) is dict else None
    return row


def find_word(row: Json, path: str, word: str) -> bool | None:
    """Whether a list of words has this one; None if there is no such list."""
    words = find_member(row, path)
    return word in words if type(words) is list else None


def read_model(body: JsonObject) -> str:
    model = body.get("model")
    if type(model) is not str:
        raise DecodeError(f"expected string, found {kind_of(model)}", "model")
    return model


def read_size(body: JsonObject, *names: str) -> int | None:
    found = next((value for name in names if (value := body.get(name)) is not None), None)
    if found is not None and (type(found) is not int or found < 1):
        raise DecodeError("expected a number of at least 1", names[0])
    return found


def read_inputs(inputs: list[Any], key: str) -> list[Any]:
    """Check that there is at least one input, and that each is a text or a list of token numbers."""
    if not inputs:
        raise DecodeError("expected at least one text", key)
    for i, item in enumerate(inputs):
        numbers = type(item) is list and all(type(n) is int for n in item)
        if type(item) is not str and not numbers:
            raise DecodeError(f"expected text, found {kind_of(item)}", key, i)
    return inputs


def refuse_token_numbers(request: EmbeddingRequest, dialect: str) -> None:
    if any(type(item) is not str for item in request.inputs):
        raise unsupported(f"{dialect} embeds text, not token numbers")


def unsupported(what: str) -> UpstreamError:
    return UpstreamError(Failure(kind="invalid_request", status=400, code="unsupported", message=what))
