"""Model lists and embeddings of a scripted provider, written with the codecs of its dialect."""

from typing import Any

from dragoman.demo.model import demo_embedding
from dragoman.dialects._base import Dialect
from dragoman.dialects._services import EmbeddingRequest, ListedModel, Vectors, unsupported
from dragoman.jsontypes import JsonObject
from dragoman.wire import WireRequest

CREATED = 1_767_225_600  # a fixed day: scripted providers do not know the time
MOST_NUMBERS = 4096  # in one vector


def describe_model(name: str) -> ListedModel:
    return ListedModel(name=name, owner="scripted", created=CREATED, max_input=1_048_576, max_output=65_536)


def list_models(dialect: Dialect, models: tuple[str, ...]) -> Any:
    if dialect.models is None:
        raise unsupported(f"{dialect.name} has no list of models")
    return dialect.models.encode([describe_model(name) for name in models], "")


def embed(dialect: Dialect, path: str, body: JsonObject) -> Any:
    """Vectors for what was asked, eight numbers each unless more are wanted."""
    if dialect.embeddings is None:
        raise unsupported(f"{dialect.name} has no embeddings")
    asked = dialect.embeddings.decode_request(WireRequest(body=body, path=path))
    return dialect.embeddings.encode_reply(_find_vectors(asked), asked)


def _find_vectors(asked: EmbeddingRequest) -> Vectors:
    size = asked.size if asked.size is not None and asked.size <= MOST_NUMBERS else 8
    texts = [str(item) for item in asked.inputs]
    rows = [list(demo_embedding(text, size)) for text in texts]
    return Vectors(rows=rows, model=asked.model, tokens=sum(len(text.split()) for text in texts))
