"""Facts about models that their servers do not tell: known_models.json, made by tools/known_models.py."""

from functools import cache
from importlib.resources import files
from typing import Any

from dragoman.dialects._services import ListedModel
from dragoman.jsontypes import load_json
from dragoman.upstream.profiles import Rows, kinds_of_model, plain_model

KNOWN = "known_models.json"


@cache
def load_known() -> dict[str, dict[str, dict[str, Any]]]:
    """Facts of public catalogues, by kind of server and model."""
    found: dict[str, dict[str, dict[str, Any]]] = load_json(files("dragoman.upstream").joinpath(KNOWN).read_bytes())[
        "models"
    ]
    return found


def find_known(kind: str, model: str, known: Rows | None = None) -> ListedModel | None:
    """By the table of its server, else of the vendor whose models have such names."""
    for name in (kind, *kinds_of_model(model, known)):
        rows = load_known().get(name, {})
        facts = rows.get(model) or rows.get(plain_model(model))
        if facts is not None:
            return ListedModel(name=model, **facts)
    return None
