"""Gemini's paths. The path names the model and, with its method, what is asked of it; the query says how to stream."""

from urllib.parse import parse_qs, quote

from dragoman.dialects._base import Door

SSE = "alt=sse"
_VERSION = r"/v1(?:beta|alpha|beta1|alpha1)?"
_OWN_VERSION = r"/v1(?:beta|alpha|beta1|alpha1)"  # under plain /v1 the list of models is OpenAI's
_MODEL = rf"{_VERSION}/(?:projects/.+/)?(?P<kind>models|tunedModels)/(?P<model>[^?#]+)"
_CACHES = rf"{_VERSION}/cachedContents"
_CACHE = rf"{_CACHES}/(?P<id>[\w.-]+)"
_READ = ("GET", "HEAD")


def write_path(groups: dict[str, str], query: str) -> str:
    alt = f"?{SSE}" if groups["verb"][0] == "s" and parse_qs(query).get("alt") == ["sse"] else ""
    return f"/v1beta/{groups['kind']}/{groups['model']}:{groups['verb']}{alt}"


def _verbs(*verbs: str) -> str:
    return rf"{_MODEL}:(?P<verb>{'|'.join(verbs)})"


DOORS = (
    Door(path=_verbs("generateContent", "streamGenerateContent"), serves="cached_conversation", write_path=write_path),
    Door(path=_verbs("countTokens"), serves="count", write_path=write_path),
    Door(path=_verbs("embedContent", "batchEmbedContents"), serves="embeddings", write_path=write_path),
    Door(path=_verbs(r"\w+"), serves="unknown_verb"),
    Door(path=_CACHES, serves="cache_new"),
    Door(path=_CACHES, methods=("GET",), serves="caches"),
    Door(path=_CACHE, methods=("GET",), serves="cache"),
    Door(path=_CACHE, methods=("PATCH",), serves="cache_change"),
    Door(path=_CACHE, methods=("DELETE",), serves="cache_end"),
    Door(path=rf"{_OWN_VERSION}/models", methods=_READ, serves="models"),
    Door(path=rf"{_OWN_VERSION}/models/(?P<model>[^?#]+)", methods=_READ, serves="model"),
)


def put_model(path: str, model: str) -> str:
    return f"/v1beta/models/{quote_model(model)}:{path.rpartition(':')[2]}"


def quote_model(name: str) -> str:
    """A model's name as one step of a path: nothing in it ends the step, the path or the query."""
    return quote(name, safe="-._~@:")
