"""Tool schemas in each target's language: FIELD-CASES 17, 18, 63, 64, 128 and mission B5, and bounds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.request import OutputFormat, Tool
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.passes.schemas.fit import adapt_schema, adapt_schemas
from dragoman.passes.schemas.targets import LANGUAGES, META
from tests.examples import examples
from tests.passes.short_forms import talk, tool, user


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# ---------------------------------------------------------------- B5 and case 63: tools without parameters

NO_PARAMETERS: list[dict[str, Any] | None] = [
    {"type": "object"},
    {},
    None,
    {"type": None},
    {"type": "object", "properties": {}},
]


@pytest.mark.parametrize("given", NO_PARAMETERS, ids=str)
@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("openai", {"type": "object", "properties": {}}),
        ("xai", {"type": "object", "properties": {}}),
        ("ollama", {"type": "object", "properties": {}}),
        ("gbnf", {"type": "object", "properties": {}}),
        ("openai_strict", {"type": "object", "properties": {}, "additionalProperties": False}),
        ("gemini", None),
        ("gemini_json", None),
    ],
)
def test_b5_case_63_a_tool_without_parameters_says_what_its_target_demands(
    given: dict[str, Any] | None, language: str, said: dict[str, Any] | None
) -> None:
    assert adapt_schema(given, language).schema == said


@pytest.mark.parametrize("given", NO_PARAMETERS[:4], ids=str)
def test_b5_anthropic_wants_an_object(given: dict[str, Any] | None) -> None:
    assert adapt_schema(given, "anthropic").schema == {"type": "object"}


def test_b5_what_is_legal_stays_the_same_object() -> None:
    request = talk(user("q"), tools=(tool("f", {"type": "object"}), tool("g", obj(a={"type": "string"}))))
    assert adapt_schemas(request, Profile(schema="anthropic"), Notes())[0] is request
    again = talk(user("q"), tools=(tool("f", obj()),))
    assert adapt_schemas(again, Profile(schema="openai"), Notes())[0] is again


def test_a_closed_tool_without_parameters_stays_closed() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert adapt_schema(closed, "openai").schema == closed
    assert adapt_schema(closed, "xai").schema == closed


# ---------------------------------------------------------------- rewriting, per language

CASE_17 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "n": {"type": "integer", "exclusiveMinimum": 0},
        "k": {"const": "x"},
        "t": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
}
CASE_18 = {
    "type": "object",
    "properties": {
        "languages": {"type": ["array", "null"], "items": {"type": "string"}},
        "v": True,
        "a": {"type": "array", "items": {"$ref": "#/properties/headers"}},
        "headers": {"type": "object"},
    },
}

FILTER = "filter_0c097d40"  # as readable as it can be, and eight digits of the SHA-256 of $filter

GOLDEN: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "17 keywords gemini lacks",
        "gemini",
        CASE_17,
        obj(
            n={"type": "integer", "minimum": 1},
            k={"enum": ["x"], "type": "string"},
            t={"type": "array", "items": {"type": "string"}, "description": "(uniqueItems: true)"},
        )
        | {"description": "(additionalProperties: false)"},
    ),
    (
        "18 type arrays, boolean schemas, references",
        "gemini",
        CASE_18,
        obj(
            languages={"type": "array", "items": {"type": "string"}, "nullable": True},
            v={"type": "string"},
            a={"type": "array", "items": {"type": "object"}},
            headers={"type": "object"},
        ),
    ),
    (
        "18 in gemini's JSON Schema",
        "gemini_json",
        CASE_18,
        obj(
            languages={"type": ["array", "null"], "items": {"type": "string"}},
            v={},
            a={"type": "array", "items": {"type": "object"}},
            headers={"type": "object"},
        ),
    ),
    (
        "18 each branch of a type array keeps its own keywords",
        "gemini",
        obj(x={"type": ["array", "string", "null"], "items": {"type": "integer"}, "minLength": 2, "description": "d"}),
        obj(
            x={
                "description": "d",
                "nullable": True,
                "anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string", "minLength": 2}],
            }
        ),
    ),
    (
        "anyOf with null",
        "gemini",
        obj(x={"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "description": "d"}),
        obj(x={"description": "d", "nullable": True, "type": "string", "maxLength": 3}),
    ),
    (
        "an array without items",
        "gemini",
        obj(x={"type": "array"}),
        obj(x={"type": "array", "items": {"type": "string"}}),
    ),
    ("an array without items, OpenAI", "openai", obj(x={"type": "array"}), obj(x={"type": "array", "items": {}})),
    (
        "numbers in an enum",
        "gemini",
        obj(x={"type": "integer", "enum": [1, 2]}, y={"enum": ["a", "", None]}),
        obj(
            x={"type": "integer", "description": "(one of: 1, 2)"},
            y={"enum": ["a"], "nullable": True, "type": "string", "description": '(one of: "a", "")'},
        ),
    ),
    (
        "a required property nobody defines",
        "gemini",
        obj(x={"type": "string"}) | {"required": ["x", "ghost"]},
        obj(x={"type": "string"}) | {"required": ["x"]},
    ),
    (
        "formats gemini does not know",
        "gemini",
        obj(x={"type": "string", "format": "uri"}, y={"type": "string", "format": "date-time"}),
        obj(
            x={"type": "string", "description": '(format: "uri")'},
            y={"type": "string", "format": "date-time"},
        ),
    ),
    (
        "a union at the top",
        "openai",
        {"anyOf": [obj(a={"type": "string"}) | {"required": ["a"]}, obj(b={"type": "string"}) | {"required": ["b"]}]},
        obj(a={"type": "string"}, b={"type": "string"}) | {"description": "(needs a or b)"},
    ),
    (
        "allOf at the top",
        "anthropic",
        {"allOf": [obj(a={"type": "string"}) | {"required": ["a"]}, obj(b={"type": "string"})]},
        obj(a={"type": "string"}, b={"type": "string"}) | {"required": ["a"]},
    ),
    (
        "a reference at the top",
        "openai",
        {"$ref": "#/$defs/P", "$defs": {"P": obj(a={"type": "string"})}},
        obj(a={"type": "string"}) | {"$defs": {"P": obj(a={"type": "string"})}},
    ),
    (
        "xAI: no null in enums",
        "xai",
        obj(x={"type": "string", "enum": ["a", None]}) | {"additionalProperties": False},
        obj(x={"type": "string", "enum": ["a"], "description": "(or null)"}) | {"additionalProperties": False},
    ),
    (
        "128 patterns for a grammar compiler",
        "gbnf",
        obj(x={"type": "string", "pattern": "^\\d+$", "description": "digits"}),
        obj(x={"type": "string", "description": 'digits (pattern: "^\\\\d+$")'}),
    ),
    (
        "ollama keeps few keywords",
        "ollama",
        obj(x={"type": "integer", "minimum": 1}, y={"$ref": "#/$defs/Y"}) | {"$defs": {"Y": {"const": "q"}}},
        obj(x={"type": "integer", "description": "(minimum: 1)"}, y={"enum": ["q"]}),
    ),
    (
        "a tuple as older drafts write it",
        "openai",
        obj(x={"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}),
        obj(x={"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}),
    ),
    (
        "types that shout",
        "openai",
        {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}},
        obj(x={"type": "string"}),
    ),
    (
        "a property name anthropic refuses",
        "anthropic",
        obj(**{"$filter": {"type": "string"}, "ok": {"type": "string"}}) | {"required": ["$filter"]},
        obj(**{FILTER: {"type": "string", "description": '(named "$filter")'}, "ok": {"type": "string"}})
        | {"required": [FILTER]},
    ),
    (
        "anthropic strict: closed, without limits",
        "anthropic_strict",
        obj(x={"type": "integer", "minimum": 1}),
        obj(x={"type": "integer", "description": "(minimum: 1)"}) | {"additionalProperties": False},
    ),
]


@pytest.mark.parametrize(
    ("language", "given", "said"), [g[1:] for g in GOLDEN], ids=[f"{g[0]} [{g[1]}]" for g in GOLDEN]
)
def test_a_schema_is_said_in_the_targets_language(language: str, given: dict[str, Any], said: dict[str, Any]) -> None:
    adapted = adapt_schema(given, language)
    assert adapted.schema == said
    assert adapt_schema(adapted.schema, language).schema == said  # idempotent


# ---------------------------------------------------------------- references


def test_a_recursive_schema_is_written_out_a_few_times_and_cut() -> None:
    tree = obj(children={"type": "array", "items": {"$ref": "#"}}, name={"type": "string"})
    adapted = adapt_schema(tree, "gemini")
    assert "$ref" not in str(adapted.schema)
    assert str(adapted.schema).count("children") == 3
    assert any("contains itself" in why for _, why, _ in adapted.lost)


def test_references_that_multiply_are_bounded() -> None:
    bomb = {f"d{i}": obj(a={"$ref": f"#/$defs/d{i + 1}"}, b={"$ref": f"#/$defs/d{i + 1}"}) for i in range(30)}
    adapted = adapt_schema({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": bomb}, "gemini")
    assert len(str(adapted.schema)) < 2_000_000


def test_a_reference_to_nothing_is_anything_and_noted() -> None:
    adapted = adapt_schema(obj(x={"$ref": "#/$defs/ghost"}, y={"$ref": "https://example.org/s"}), "gemini")
    assert adapted.schema == obj(x={"type": "string"}, y={"type": "string"})
    assert len(adapted.lost) == 2


def test_references_stay_where_the_target_reads_them() -> None:
    schema = obj(x={"$ref": "#/$defs/X"}) | {"$defs": {"X": {"type": "string"}}}
    assert adapt_schema(schema, "openai").schema == schema


# ---------------------------------------------------------------- case 64: strict

OPENAI = Profile(dialect="openai_chat", schema="openai", strict_schema="openai_strict")
ANTHROPIC = Profile(dialect="anthropic", schema="anthropic", strict_schema="anthropic_strict")


@pytest.mark.parametrize(
    ("profile", "given", "strict", "closed"),
    [
        (OPENAI, obj(a=obj(b={"type": "string"})) | {"required": []}, False, None),
        (OPENAI, obj(a={"type": "string"}) | {"required": ["a"]}, True, False),
        (
            OPENAI,
            obj(a={"type": "string"}) | {"required": ["a"], "additionalProperties": {"type": "string"}},
            False,
            None,
        ),
        (ANTHROPIC, obj(a={"type": "string"}), True, False),
        (ANTHROPIC, obj(a={"$ref": "#"}), False, None),
    ],
    ids=["optional fields", "can be closed", "open on purpose", "anthropic has optional fields", "recursion"],
)
def test_case_64_strict_is_promised_only_for_a_schema_that_can_keep_it(
    profile: Profile, given: dict[str, Any], strict: bool, closed: bool | None
) -> None:
    request, _ = adapt_schemas(talk(user("q"), tools=(tool("f", given, strict=True),)), profile, Notes())
    assert request.tools is not None
    (made,) = request.tools
    assert isinstance(made, Tool)
    assert made.strict is strict
    assert made.parameters is not None
    if closed is not None:
        assert made.parameters.get("additionalProperties") is closed
    else:
        assert made.parameters == given
    assert adapt_schemas(request, profile, Notes())[0] is request


def test_case_64_strict_is_left_out_where_it_cannot_be_said() -> None:
    notes = Notes()
    profile = Profile(dialect="ollama", schema="ollama")
    request, _ = adapt_schemas(talk(user("q"), tools=(tool("f", obj(), strict=True),)), profile, notes)
    assert request.tools == (tool("f", obj()),)
    assert [(n.kind, n.where) for n in notes] == [("dropped", "/tools/0/strict")]


def test_an_answers_schema_is_adapted_too() -> None:
    output = OutputFormat(type="json_schema", schema={"type": "array", "items": {"const": 1}})
    request, _ = adapt_schemas(talk(user("q"), output=output), Profile(schema="gemini_json"), Notes())
    assert request.output is not None
    assert request.output.schema == {"type": "array", "items": {"enum": [1]}}


def test_what_is_taken_out_is_noted_where_it_stood() -> None:
    notes = Notes()
    adapt_schemas(talk(user("q"), tools=(tool("f", CASE_17),)), Profile(schema="gemini"), notes)
    assert ("altered", "/tools/0/parameters/properties/t/uniqueItems") in [(n.kind, n.where) for n in notes]


# ---------------------------------------------------------------- laws

leaf = st.one_of(
    st.booleans(),
    st.just({}),
    st.sampled_from(["string", "integer", "null", "array", "object", "weird", None]).map(lambda t: {"type": t}),
    st.lists(st.sampled_from(["string", "null", "array", "integer"]), max_size=3).map(lambda t: {"type": t}),
    st.lists(st.sampled_from(["a", "", 1, None, True, 1.5]), max_size=3).map(lambda e: {"enum": e}),
    st.sampled_from(
        [{"$ref": "#"}, {"$ref": "#/$defs/D"}, {"$ref": "nowhere"}, {"const": None}, {"not": {"type": "null"}}]
    ),
    st.just({"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2, "x-vendor": {"a": 1}}),
)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "b-c", "$d", "e"]), inner, max_size=3)
    return st.one_of(
        st.builds(
            lambda p, r: {"type": "object", "properties": p, "required": r},
            named,
            st.lists(st.sampled_from(["a", "b-c", "$d", "e"])),
        ),
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(lambda k, b: {k: b}, st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, max_size=3)),
        st.builds(lambda p, d: {"properties": p, "$defs": {"D": d}, "additionalProperties": False}, named, inner),
    )


schemas = st.recursive(leaf, _grow, max_leaves=8).filter(lambda s: isinstance(s, dict))


def keywords(schema: Any) -> set[str]:
    """Every keyword used anywhere in a schema."""
    if isinstance(schema, list):
        return {k for s in schema for k in keywords(s)}
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):
            found |= {k for s in value.values() for k in keywords(s)}
        elif key not in ("enum", "const", "default", "required"):
            found |= keywords(value)
    return found


@settings(max_examples=examples(300), deadline=None)
@given(schema=schemas, language=st.sampled_from(sorted(LANGUAGES)))
def test_any_schema_comes_out_in_the_language_and_stays_so(schema: dict[str, Any], language: str) -> None:
    adapted = adapt_schema(schema, language)
    if adapted.schema is None:
        return
    allowed = LANGUAGES[language].keywords
    if allowed is not None:
        assert keywords(adapted.schema) <= allowed | META
    assert adapted.schema["type"] == "object"
    assert adapt_schema(adapted.schema, language).schema == adapted.schema


def test_a_null_inside_all_of_says_nothing_when_merged() -> None:
    given = {"type": "object", "properties": {"a": {"allOf": [{"type": None}, {"type": "string"}]}}}
    adapted = adapt_schema(given, "openai_strict").schema
    assert adapted is not None
    assert adapted["properties"]["a"] == {"type": "string"}
