"""The fate of canonical fields, measured."""

import pytest
from msgspec.structs import fields

from dragoman.conformance.fields import Sample, fate, measure_fields, samples
from dragoman.conformance.pairs import DIALECTS
from dragoman.model.reply import Usage
from dragoman.model.request import OutputFormat, ReasoningSetting, Request


def named(dialect: str, label: str) -> Sample:
    return next(sample for sample in samples(dialect) if sample.label == label)


@pytest.mark.parametrize(
    ("label", "target", "expected"),
    [
        ("top_k", "anthropic", "carried"),
        ("top_k", "openai_chat", "dropped"),
        ("messages[] developer, first", "openai_chat", "carried"),
        ("messages[] developer, first", "anthropic", "altered"),
        ("output.schema", "ollama", "carried"),
        ("parts[]<audio>.data", "anthropic", "altered"),
        ("finish.reason filter", "openai_chat", "carried"),
        ("usage.cache_read", "ollama", "dropped"),
    ],
)
def test_a_field_meets_its_fate(label: str, target: str, expected: str) -> None:
    assert fate(named("anthropic", label), target) == expected


@pytest.mark.parametrize("struct", [Request, ReasoningSetting, OutputFormat, Usage])
def test_every_canonical_setting_has_a_sample(struct: type) -> None:
    prefixes = {"Request": "", "ReasoningSetting": "reasoning.", "OutputFormat": "output.", "Usage": "usage."}
    prefix = prefixes[struct.__name__]
    labels = {sample.label.split(" ")[0].split("[")[0] for sample in samples("anthropic")}
    tops = labels | {label.split(".")[0] for label in labels}
    assert [f.name for f in fields(struct) if f.name != "extras" and prefix + f.name not in tops] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_dialect_says_it_carries_to_itself(dialect: str) -> None:
    rows = measure_fields(dialect, (dialect,))
    assert len(rows) > 30
    assert {row.fates[dialect] for row in rows} == {"carried"}
