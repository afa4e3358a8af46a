"""Ollama's paths."""

from dragoman.dialects._base import Door
from dragoman.dialects.ollama.embeddings import OLD_PATH, PATH
from dragoman.dialects.ollama.words import CHAT_PATH, GENERATE_PATH

_READ = ("GET", "HEAD")

DOORS = (
    Door(path=CHAT_PATH),
    Door(path=GENERATE_PATH),
    Door(path=PATH, serves="embeddings"),
    Door(path=OLD_PATH, serves="embeddings"),
    Door(path="/", methods=_READ, serves="root", public=True),
    Door(path="/api/version", methods=_READ, serves="version"),
    Door(path="/api/tags", methods=_READ, serves="models"),
    Door(path="/api/ps", methods=_READ, serves="running"),
    Door(path="/api/show", serves="show"),
)
