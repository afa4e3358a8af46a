"""A Struct is read from tables; a mistake is named with its place, what fits there, and what was found."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct
from msgspec.json import schema

from dragoman.errors import ConfigError
from dragoman.read_struct import OneOrMore, Seconds, Texts, about, name_type, read_struct, texts

WHOLE = "expected a whole number of at least 1"


class Inner(Struct, forbid_unknown_fields=True):
    size: OneOrMore
    names: Texts = ()


class Outer(Struct, forbid_unknown_fields=True):
    color: Literal["red", "green"] = "red"
    wait_s: Seconds = 1.0
    url: Annotated[str, Meta(pattern="^https://", examples=["https://a.example"])] = "https://b.example"
    inner: Inner | None = None
    by_name: dict[str, Inner] = {}
    many: tuple[Inner, ...] = ()
    either: bool | str = False
    to: Annotated[tuple[str, ...], about("models")] = ()


class Needed(Struct):
    to: Annotated[str, about("a model")]


@pytest.mark.parametrize(
    ("data", "place", "why"),
    [
        (3, "", "expected a table, found number"),
        ({"colour": "red"}, "colour", "no such key; did you mean color?"),
        (
            {"xyz": 1},
            "xyz",
            "no such key; expected one of by_name, color, either, inner, many, to, url, wait_s",
        ),
        ({"color": "blue"}, "color", "expected green or red, found 'blue'"),
        ({"color": 3}, "color", "expected green or red, found number"),
        ({"wait_s": 0}, "wait_s", "expected a number of at least 0.01, found 0"),
        ({"wait_s": float("nan")}, "wait_s", "expected a number of at least 0.01, found nan"),
        ({"url": "ftp://x"}, "url", "expected text like https://a.example, found another text"),
        ({"url": ""}, "url", "expected text like https://a.example, found an empty text"),
        ({"inner": {}}, "inner", "size is needed"),
        ({"inner": {"size": 10**13}}, "inner.size", f"{WHOLE}, found {10**13}, which is too large"),
        ({"by_name": {"a": {"size": 1}, "b": {"size": True}}}, "by_name.b.size", f"{WHOLE}, found boolean"),
        ({"many": [{"size": 1}, {"size": 1, "names": ["x", 3]}]}, "many.1.names.1", "expected text, found number"),
        ({"many": {}}, "many", "expected tables [[many]], found object"),
        ({"either": 3}, "either", "expected true or false or text, found number"),
        ({"to": "x"}, "to", "expected a list of texts, found string"),
    ],
)
def test_a_mistake_is_named_with_its_place(data: Any, place: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_struct(data, Outer, "a.toml")
    assert (caught.value.key, caught.value.why) == (place, why)


def test_a_missing_key_is_explained_at_its_table() -> None:
    with pytest.raises(ConfigError, match="b: to is needed: a model"):
        read_struct({}, Needed, "a.toml", "b")


def test_text_that_may_be_a_secret_is_not_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        read_struct({"url": "secret"}, Outer, "a.toml")
    assert "secret" not in str(caught.value)


def test_a_single_text_may_stand_for_a_list() -> None:
    assert [texts(one) for one in (None, (), "a", ("a", "b"))] == [(), (), ("a",), ("a", "b")]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Annotated[int, Meta(ge=0, le=65535)], "a whole number from 0 to 65535"),
        (Annotated[float, Meta(gt=0, le=3600)], "a number above 0, at most 3600"),
        (int | None, "a whole number"),
        (list[int], "a list of whole numbers"),
        (dict[str, int], "a table"),
        (Any, "any value"),
    ],
)
def test_a_type_in_words(kind: Any, words: str) -> None:
    assert name_type(schema(kind)) == words
