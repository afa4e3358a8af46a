"""Every field of the vendors' types is accounted for, and every account is what is measured (issue 3, mission C6)."""

import pytest

from dragoman.conformance.accounts import FieldAccount, find_rule, read_accounts
from dragoman.dialects import NAMES
from tests.fields.accounts import account_of, group, measured, totals
from tests.fields.doors import door
from tests.fields.samples import is_constant
from tests.fields.surfaces import WALKS, surface

DIALECTS = tuple(name for name in NAMES if name != "canonical")
# for test ids without importing any vendor's package
SECTIONS = ("request", "reply", "stream")
ANEW = "if this is what you meant: python -m tests.fields.accounts"
PLACES = [
    *((dialect, section) for dialect in DIALECTS for section in SECTIONS),
    *(("ollama", f"generate {section}") for section in SECTIONS),
]


def accountable(dialect: str, section: str) -> list[str]:
    """The paths that need an account: those with more than one possible word."""
    settings = door(dialect, section).settings
    return [p for p, entry in surface(dialect).sections[section].items() if not is_constant(entry, settings)]


def test_every_dialect_has_a_surface() -> None:
    assert set(WALKS) == set(DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_accounts_are_of_the_package_that_is_installed(dialect: str) -> None:
    accounts, here = read_accounts(dialect), surface(dialect)
    assert accounts.package == here.package
    assert list(accounts.sections) == list(here.sections)


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_every_field_is_accounted_for(dialect: str, section: str) -> None:
    rules = read_accounts(dialect).sections[section]
    missing = [path for path in accountable(dialect, section) if find_rule(rules, path) is None]
    assert not missing, f"{len(missing)} paths without an account ({ANEW}): {missing[:10]}"


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_no_account_is_of_a_field_that_no_longer_exists(dialect: str, section: str) -> None:
    rules = read_accounts(dialect).sections[section]
    used = {find_rule(rules, path) for path in accountable(dialect, section)}
    assert sorted(set(rules) - used) == [], ANEW


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_every_account_is_what_is_measured(dialect: str, section: str) -> None:
    rules, found = read_accounts(dialect).sections[section], measured(dialect, section)
    wrong = []
    for path in accountable(dialect, section):
        rule = find_rule(rules, path)
        said, seen = rules[rule or path], account_of(found[path])
        if (said.word, _place(said)) != (seen.word, _place(seen)):
            wrong.append(f"{path}: accounted {said.word} {said.detail}, measured {found[path]}"[:400])
    assert not wrong, f"{len(wrong)} accounts ({ANEW}):\n" + "\n".join(wrong[:20])


def _place(account: FieldAccount) -> str:
    return account.detail if account.word in ("carried", "adapted") else ""


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_the_totals_are_right(dialect: str, section: str) -> None:
    assert read_accounts(dialect).totals[section] == totals(dialect, section)


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_what_is_declared_has_a_reason(dialect: str, section: str) -> None:
    rules = read_accounts(dialect).sections[section]
    assert [path for path, account in rules.items() if account.word == "declared" and len(account.detail) < 8] == []


@pytest.mark.parametrize(("dialect", "section"), PLACES)
def test_the_one_word_a_kind_always_says_comes_back(dialect: str, section: str) -> None:
    settings, found = door(dialect, section).settings, measured(dialect, section)
    constants = [p for p, entry in surface(dialect).sections[section].items() if is_constant(entry, settings)]
    assert {p: found[p] for p in constants if found[p].account not in ("carried", "extra", "adapted")} == {}


def test_the_longest_beginning_counts() -> None:
    rules = {
        "a*": FieldAccount("extra"),
        "a.b*": FieldAccount("carried", "x"),
        "a.b.c": FieldAccount("declared", "why"),
    }
    assert [find_rule(rules, path) for path in ("a.z", "a.b.d", "a.b.c", "b")] == ["a*", "a.b*", "a.b.c", None]


def test_extras_are_grouped_by_what_they_have_in_common() -> None:
    extras, others = ["a.b", "a.c[]<x>.d", "a.c[]<x>.e", "f"], ["a.c[]<y>.d", "g"]
    assert group(extras, others) == ["a.b", "a.c[]<x>*", "f"]
