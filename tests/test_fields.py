"""Reading JSON objects key by key: what is taken, what is left, what an error says."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.errors import DecodeError
from dragoman.fields import (
    add_extras,
    take_each,
    take_flag_or_none,
    take_integer_or_none,
    take_list_or_none,
    take_number_or_none,
    take_object,
    take_text,
    take_text_or_none,
    take_texts_or_none,
)
from dragoman.notes import ROOT, Notes


@pytest.mark.parametrize(
    ("take", "value", "words"),
    [
        (take_text, None, "/k: expected string, found null"),
        (take_text, 1, "/k: expected string, found number"),
        (take_text_or_none, [], "/k: expected string, found array"),
        (take_flag_or_none, "true", "/k: expected boolean, found string"),
        (take_integer_or_none, 1.5, "/k: expected whole number, found number"),
        (take_integer_or_none, True, "/k: expected whole number, found boolean"),
        (take_number_or_none, "1", "/k: expected number, found string"),
        (take_object, [], "/k: expected object, found array"),
        (take_list_or_none, {}, "/k: expected array, found object"),
        (take_texts_or_none, ["a", 1], "/k/1: expected string, found number"),
    ],
)
def test_a_wrong_type_says_where_and_what(take: Callable[[Any, str], object], value: object, words: str) -> None:
    with pytest.raises(DecodeError) as caught:
        take({"k": value}, "k")
    assert str(caught.value) == words


def test_a_path_is_gathered_while_the_error_unwinds() -> None:
    with pytest.raises(DecodeError) as caught:
        take_each({"a/b": [{"k": "x"}, {"k": 1}]}, "a/b", lambda item: take_text(item, "k"))
    assert caught.value.where == "/a~1b/1/k"


def test_a_null_is_left_for_the_extras() -> None:
    body: dict[str, Any] = {"k": None, "n": 3.0}
    assert take_text_or_none(body, "k") is None
    assert take_integer_or_none(body, "n") == 3
    assert body == {"k": None}


def test_own_extras_win_and_foreign_ones_are_notes() -> None:
    body: dict[str, Any] = {"finish": "stop", "limit": 5, "gone": 1}
    notes = Notes()
    own = {"finish": "eos", "limit": None, "new": None, "~spelling": 1, "~omit": ["gone"]}
    add_extras(body, {"parrot": own, "gemini": {"a": 1, "b": None, "~c": 2}}, "parrot", (ROOT, "reply"), notes)
    assert body == {"finish": "eos", "limit": 5, "new": None}
    assert [(note.kind, note.where) for note in notes] == [("dropped", "/reply/extras/gemini/a")]
