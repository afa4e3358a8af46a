"""What the configuration says about teams and money: [key.NAME], [team.NAME], [prices], [budgets], [ledger].

[team.web]
budget = "500 USD/month"

[key.ada]
secret = "${ADA_KEY}"
team = "web"
models = ["gpt-*", "fast"]
rpm = 60
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman.accounts.grants import FileKey, Grant, check_grant, check_name
from dragoman.accounts.prices import ModelPrice, read_price
from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of
from dragoman.read_struct import OneOrMore, Texts, ZeroOrMore, about, texts


class FileTeamTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a team may use: a table `[team.NAME]`."""

    models: Annotated[Texts | None, about("models and aliases that may be asked for, with `*`. Left out: all")] = None
    tools: Annotated[Texts | None, about("tools of MCP servers, as `server/tool`, with `*`. Left out: all")] = None
    rpm: Annotated[OneOrMore | None, about("requests in any 60 seconds")] = None
    tpm: Annotated[OneOrMore | None, about("tokens in any 60 seconds")] = None
    at_once: Annotated[OneOrMore | None, about("requests at the same time")] = None
    budget: Annotated[str | None, about("money in a period: `20 USD/month`")] = None
    soft: Annotated[int, Meta(ge=1, le=100), about("percent of the budget at which a header and the webhook warn")] = 80
    bodies: Annotated[bool, about("`true`: the ledger keeps requests and answers too, with secrets masked")] = False
    read_only: Annotated[bool, about("`true`: an admin key that sees everything and changes nothing")] = False


class FileKeyTable(FileTeamTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client key: a table `[key.NAME]`."""

    secret: Annotated[str, about("the key itself; at least 16 characters")] = ""
    team: Annotated[str, about("the team that it belongs to")] = ""
    expires: Annotated[Any, about("the day on which it ends, such as `2027-01-31`")] = None


class BudgetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[budgets]`."""

    policy: Annotated[
        Literal["cap", "refuse"],
        about(
            "what happens to a request that may cost more than the rest of its budget. `cap`: it reserves the rest. "
            "`refuse`: it is refused"
        ),
    ] = "cap"
    unknown_price: Annotated[
        Literal["refuse", "allow"], about("what happens to a request with a budget if its model has no price")
    ] = "refuse"
    webhook: Annotated[
        str,
        Meta(pattern="^(https?://[^\\s/?#@]+([/?#][!-~]*)?)?$", examples=["https://hooks.example.com/budget"]),
        about(
            "an address that gets a message when a key or a team passes its soft limit, and when its budget is used up"
        ),
    ] = ""
    lease_s: Annotated[OneOrMore, about("seconds after which a reservation of a process that died is given back")] = 60


class LedgerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[ledger]`."""

    on: Annotated[bool | None, about("whether requests are written down. Left out: if the gateway has keys")] = None
    keep_days: Annotated[ZeroOrMore, about("days to keep single requests. Sums by the hour stay")] = 400
    tags: Annotated[tuple[str, ...], about("keys of a request's `metadata` that are kept as tags")] = ()


class TeamSettings(Struct, frozen=True, kw_only=True):
    keys: tuple[FileKey, ...] = ()
    teams: dict[str, Grant] = {}
    prices: dict[str, ModelPrice | None] = {}
    budgets: BudgetSettings = BudgetSettings()
    ledger: LedgerSettings = LedgerSettings()


def read_key(name: str, table: FileKeyTable, file: str) -> FileKey:
    at = f"key.{name}"
    try:
        check_name(name)
    except ValueError as error:
        raise ConfigError(file, at, str(error)) from error
    ends = None if table.expires is None else _time(table.expires, f"{at}.expires", file)
    return FileKey(secret=table.secret, name=name, team=table.team, grant=read_grant(table, at, file), expires=ends)


def read_grant(table: FileTeamTable, at: str, file: str) -> Grant:
    fields = {name: getattr(table, name) for name in Grant.__struct_fields__}
    listed = {name: texts(fields[name]) for name in ("models", "tools") if fields[name] is not None}
    try:
        return check_grant(Grant(**{**fields, **listed}))
    except ValueError as error:
        name, _, why = str(error).partition(": ")
        raise ConfigError(file, f"{at}.{name}", why) from error


def _time(value: object, at: str, file: str) -> float:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ConfigError(file, at, "expected a day like 2027-01-31") from error
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise ConfigError(file, at, f"expected a day like 2027-01-31, found {kind_of(value)}")


def read_model_price(model: str, row: Mapping[str, Any], file: str) -> ModelPrice | None:
    """None: the price is not known, whatever the built-in list says."""
    try:
        return read_price(row) if row else None
    except ValueError as error:
        raise ConfigError(file, f"prices.{model}", str(error)) from error
