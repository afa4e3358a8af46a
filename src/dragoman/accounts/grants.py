"""Grant: what a key or a team may use, and how much of it. Holder: the owner of a key, with its grants."""

import fnmatch
import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from msgspec import UNSET, Struct, UnsetType

from dragoman.accounts.money import Budget, read_budget
from dragoman.fields import LAST_SECOND

MOST_PATTERNS = 200
LONGEST_NAME = 100
LONGEST_GRACE_S = 10 * 366 * 86400.0


class Grant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """None means "no limit". Patterns have `*` and `?`. An empty list allows nothing."""

    models: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None  # of MCP servers, as `server/tool`
    rpm: int | None = None  # requests in any 60 seconds
    tpm: int | None = None  # tokens in any 60 seconds
    at_once: int | None = None
    budget: str | None = None  # `20 USD/month`
    soft: int = 80  # percent of the budget at which a header and the webhook warn
    bodies: bool = False  # the ledger keeps requests and answers too, masked
    read_only: bool = False  # an admin key that sees everything and changes nothing


class GrantChange(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fields that are not set stay as they are. None takes a limit away."""

    models: tuple[str, ...] | UnsetType | None = UNSET
    tools: tuple[str, ...] | UnsetType | None = UNSET
    rpm: int | UnsetType | None = UNSET
    tpm: int | UnsetType | None = UNSET
    at_once: int | UnsetType | None = UNSET
    budget: str | UnsetType | None = UNSET
    soft: int | UnsetType = UNSET
    bodies: bool | UnsetType = UNSET
    read_only: bool | UnsetType = UNSET


NO_GRANT = Grant()


def change_grant(grant: Grant, change: GrantChange) -> Grant:
    """Raises ValueError if the result is not valid."""
    names = [name for name in Grant.__struct_fields__ if getattr(change, name) is not UNSET]
    fields = {name: getattr(change if name in names else grant, name) for name in Grant.__struct_fields__}
    return check_grant(Grant(**fields))


def check_grant(grant: Grant) -> Grant:
    """The grant, if it is valid. Otherwise a ValueError names the wrong field."""
    for name in ("rpm", "tpm", "at_once"):
        limit = getattr(grant, name)
        if limit is not None and not 1 <= limit <= 10**12:
            raise ValueError(f"{name}: expected a whole number of at least 1, found {limit}")
    if not 1 <= grant.soft <= 100:
        raise ValueError(f"soft: expected a percentage from 1 to 100, found {grant.soft}")
    for name in ("models", "tools"):
        _check_patterns(name, getattr(grant, name) or ())
    if (bare := next((word for word in grant.tools or () if not set("/*?") & set(word)), None)) is not None:
        raise ValueError(f"tools: expected server/tool patterns; {bare[:50] + '/*'!r} is every tool of a server")
    if grant.budget is not None:
        try:
            read_budget(grant.budget)
        except ValueError as error:
            raise ValueError(f"budget: {error}") from None
    return grant


def _check_patterns(name: str, patterns: Iterable[str]) -> None:
    patterns = list(patterns)
    if len(patterns) > MOST_PATTERNS:
        raise ValueError(f"{name}: expected at most {MOST_PATTERNS} patterns")
    wrong = next((word for word in patterns if not word.strip() or len(word) > 200 or not word.isprintable()), None)
    if wrong is not None:
        raise ValueError(f"{name}: expected patterns like 'gpt-*', found {wrong[:50]!r}")


def check_name(name: str) -> str:
    """A name for people, on one line. Anything else raises ValueError."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"name: expected at most {LONGEST_NAME} printable characters")
    return name


def check_end(expires: float | None) -> float | None:
    """When a key ends, in seconds since 1970; a ValueError if no calendar has that day."""
    if expires is not None and not 0 <= expires <= LAST_SECOND:
        raise ValueError("expires: expected seconds since 1970")
    return expires


def check_future(expires: float, now: float) -> float:
    """The end of a key that is made or changed now."""
    if expires <= now:
        raise ValueError("expires: expected a time to come; revoke a key to end it now")
    return expires


def check_team_name(team: str, teams: Collection[str]) -> None:
    """A ValueError if a key is to join a team that does not exist: nothing would limit it."""
    if team not in teams:
        from difflib import get_close_matches  # after a mistake only

        near = get_close_matches(team, teams, n=1) or sorted(teams)[:5]
        known = f"; there is {', '.join(near)}" if near else ""
        raise ValueError(f"team: there is no team {team!r}{known}. `dragoman teams set NAME` makes one")


def check_grace(grace_s: float) -> float:
    """How long the old secret of a key stays good."""
    if not 0 <= grace_s <= LONGEST_GRACE_S:
        raise ValueError("grace_s: expected seconds, at most ten years")
    return grace_s


class FileKey(Struct, frozen=True, kw_only=True):
    """A key of the configuration."""

    secret: str
    name: str = ""
    team: str = ""
    grant: Grant = NO_GRANT
    expires: float | None = None


class Account(Struct, frozen=True, kw_only=True):
    """One grant that applies to a request. Its use is counted under `name`."""

    name: str  # `key:ID` or `team:NAME`
    label: str  # for people: "the key ada"
    grant: Grant
    budget: Budget | None = None

    @property
    def limited(self) -> bool:
        grant = self.grant
        return grant.rpm is not None or grant.tpm is not None or grant.at_once is not None


class Holder(Struct, frozen=True, kw_only=True):
    """The owner of a key. A request is allowed if all its accounts allow it."""

    id: str
    name: str = ""
    team: str = ""
    admin: bool = False
    accounts: tuple[Account, ...] = ()
    limited: tuple[Account, ...] = ()  # accounts with limits by the minute
    budgeted: tuple[Account, ...] = ()
    currency: str = ""  # of its budgets; "" if they have several
    free_models: bool = True  # no account names models
    free_tools: bool = True
    keeps_bodies: bool = False  # the ledger keeps requests and answers
    read_only: bool = False

    def may_use(self, model: str) -> bool:
        if self.free_models:
            return True
        return all(matches(account.grant.models, model) for account in self.accounts)

    def may_call(self, server: str, tool: str) -> bool:
        if self.free_tools:
            return True
        return all(matches(account.grant.tools, f"{server}/{tool}") for account in self.accounts)

    def may_reach(self, server: str) -> bool:
        """Whether any tool of an MCP server may be called."""
        return all(
            account.grant.tools is None
            or any(matches((word.partition("/")[0],), server) for word in account.grant.tools)
            for account in self.accounts
        )


def make_holder(
    key_id: str, name: str, grant: Grant, *, team: str = "", team_grant: Grant = NO_GRANT, admin: bool = False
) -> Holder:
    accounts = [_account(f"key:{key_id}", f"the key {name or key_id}", grant)]
    if team:
        accounts.append(_account(f"team:{team}", f"the team {team}", team_grant))
    currencies = {account.budget.currency for account in accounts if account.budget is not None}
    return Holder(
        id=key_id,
        name=name,
        team=team,
        admin=admin,
        accounts=tuple(accounts),
        limited=tuple(account for account in accounts if account.limited),
        budgeted=tuple(account for account in accounts if account.budget is not None),
        currency=currencies.pop() if len(currencies) == 1 else "",
        free_models=all(account.grant.models is None for account in accounts),
        free_tools=all(account.grant.tools is None for account in accounts),
        keeps_bodies=any(account.grant.bodies for account in accounts),
        read_only=admin and grant.read_only,
    )


def _account(name: str, label: str, grant: Grant) -> Account:
    budget = read_budget(grant.budget) if grant.budget is not None else None
    return Account(name=name, label=label, grant=grant, budget=budget)


def matches(patterns: tuple[str, ...] | None, name: str) -> bool:
    """Whether one of the patterns fits the whole name. None fits every name."""
    return patterns is None or _compile(patterns).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _compile(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all of them. `[` has no special meaning: model names may hold it."""
    words = [fnmatch.translate(word.replace("[", "[[]")) for word in patterns]
    return re.compile("|".join(words) or r"(?!)")
