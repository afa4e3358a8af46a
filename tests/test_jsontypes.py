"""The members of an object in its own text: found where they stand, and none of them twice."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import jsontypes
from dragoman.errors import DecodeError
from dragoman.jsontypes import (
    check_keys,
    copy_json,
    count_sign,
    has_more,
    has_more_values,
    has_word,
    load_in_pieces,
    load_json,
    split_members,
    top_spans,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD_MEMBERS = [
    b"{}",
    b" { } ",
    b'{ "mod\\u0065l" : "x", "a\\"b" : {"a":1} , "":[ ] }\n',
    b'{"a":"\\"a\\":1","b":{"a":2},"c":[{"a":3}],"d":-1.5e3}',
]


@pytest.mark.parametrize("data", ODD_MEMBERS)
def test_each_value_is_found_where_it_stands(data: bytes) -> None:
    assert {key: json.loads(data[start:end]) for key, (start, end) in top_spans(data).items()} == json.loads(data)


@given(
    st.dictionaries(st.text(max_size=5), JSON, max_size=6),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
)
def test_any_value_is_found_where_it_stands(body: dict[str, object], separators: tuple[str, str]) -> None:
    data = json.dumps(body, separators=separators).encode()
    check_keys(data)
    assert {key: json.loads(data[start:end]) for key, (start, end) in top_spans(data).items()} == body
    if body:
        members = [data.strip()[1:-1], *(json.dumps({key: value}).encode()[1:-1] for key, value in body.items())]
        for again in members[1:]:
            for twice in (members[0] + b"," + again, again + b", " + members[0]):
                for check in (top_spans, check_keys):
                    with pytest.raises(DecodeError, match="duplicate key"):
                        check(b"{" + twice + b"}")


@pytest.mark.parametrize(
    "data",
    [b'{"a":12,"a":1}', b'{"a":1,"a":12}', b'{"model":"a","x":1,"mod\\u0065l":"a"}', b'{"":1,"":1}', b'{"a":1,"a":1 }'],
)
def test_a_key_said_twice_is_seen_however_it_is_spelt(data: bytes) -> None:
    for check in (top_spans, check_keys):
        with pytest.raises(DecodeError, match="duplicate key"):
            check(data)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_values_are_counted_outside_strings_only(value: object) -> None:
    data = json.dumps(value).encode()
    plain = json.dumps(_without_texts(value))
    count = plain.count(",") + plain.count(":")
    for piece in (1, 2, 3, 7, 1000):
        with patch.object(jsontypes, "_PIECE_BYTES", piece):
            assert has_more_values(data, count - 1)
            assert not has_more_values(data, count)


def _without_texts(value: object) -> object:
    """The same shape, and no comma or colon in a text."""
    match value:
        case dict():
            return {f"k{i}": _without_texts(item) for i, item in enumerate(value.values())}
        case list():
            return [_without_texts(item) for item in value]
        case _:
            return 0


@given(JSON)
def test_a_copy_is_equal_and_shares_nothing_that_changes(value: object) -> None:
    copied = copy_json(value)
    assert copied == value
    assert not containers(value) & containers(copied)


def containers(value: object) -> set[int]:
    if not isinstance(value, dict | list):
        return set()
    inner = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(containers, inner))


ODD = object()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": (1, ({"b": 2},))}, {"a": [1, [{"b": 2}]]}),
        ({"a": (10**30,), "b": "\ud800"}, {"a": [10**30], "b": "\ud800"}),
        ([(ODD,)], [[ODD]]),
        ([b"x", 2**63, float("inf")], [b"x", 2**63, float("inf")]),
    ],
)
def test_a_copy_has_lists_for_tuples_and_keeps_what_json_cannot_say(value: object, expected: object) -> None:
    assert copy_json(value) == expected


@given(data=st.binary(max_size=300) | st.text("aZ{,", max_size=300).map(str.encode), most=st.integers(0, 20))
def test_signs_are_counted_as_bytes_counts_them(data: bytes, most: int) -> None:
    assert count_sign(data, b"{") == data.count(b"{")
    assert has_more(data, b"{", most) == (data.count(b"{") > most)


@given(data=st.text("aZbZ", max_size=400).map(str.encode), word=st.sampled_from([b"Z", b"aZb", b"ZaZ", b"bbZaa"]))
def test_a_word_is_found_by_a_rare_letter_of_it(data: bytes, word: bytes) -> None:
    assert has_word(data, word, b"Z") == (word in data)


@pytest.mark.parametrize("before", [0, 63, 64, 65, 1000])
def test_a_word_is_found_behind_many_of_its_letters(before: int) -> None:
    assert has_word(b"Z" * before + b"aZb", b"aZb", b"Z")
    assert not has_word(b"Z" * before + b"aZ", b"aZb", b"Z")


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.sampled_from([None, 1]))
def test_long_lists_read_item_by_item_give_the_same_values(body: dict[str, object], indent: int | None) -> None:
    data = json.dumps(body, indent=indent).encode()
    members = split_members(data)
    assert members is not None
    with patch.object(jsontypes, "LONG_BYTES", 0):
        assert load_in_pieces(members) == load_json(data) == body


@pytest.mark.parametrize("wrong", [b"\xff", b"\\ud800", b"\\x", b"\n"])
def test_a_long_list_with_a_wrong_text_is_read_as_a_whole(wrong: bytes) -> None:
    members = split_members(b'{"messages": [{"a": "%b"}]}' % wrong)
    with patch.object(jsontypes, "LONG_BYTES", 0):
        assert members is None or load_in_pieces(members) is None
    with pytest.raises(DecodeError):
        load_json(b'{"messages": [{"a": "%b"}]}' % wrong, strict=True)
