"""What the configuration says about teams and money: [key.NAME], [team.NAME], [prices], [budgets], [ledger].

[team.web]
budget = "500 USD/month"

[key.ada]
secret = "${ADA_KEY}"
team = "web"
models = ["gpt-*", "fast"]
rpm = 60
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from dragoman.accounts.grants import FileKey, Grant, check_grant, check_name
from dragoman.accounts.prices import ModelPrice, read_price
from dragoman.errors import ConfigError
from dragoman.jsontypes import kind_of

TABLES = {"key", "team", "prices", "budgets", "ledger"}
Expand = Callable[[str, str], str]  # a text, and the key it stands under
S = TypeVar("S", bound=Struct)


class BudgetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`cap`: a request reserves what is left, if its estimate is more. `refuse`: then it does not pass."""

    policy: Literal["cap", "refuse"] = "cap"
    unknown_price: Literal["refuse", "allow"] = "refuse"  # a model without a price, asked for with a budget
    webhook: str = ""  # told when an account passes its soft limit, and its budget
    lease_s: int = 60  # what a process that died had reserved is given back after this


class LedgerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    on: bool | None = None  # None: if the gateway has keys
    keep_days: int = 400  # single requests; sums by the hour stay
    tags: tuple[str, ...] = ()  # keys of a request's `metadata` that are kept as tags


class TeamSettings(Struct, frozen=True, kw_only=True):
    keys: tuple[FileKey, ...] = ()
    teams: dict[str, Grant] = {}
    prices: dict[str, ModelPrice | None] = {}
    budgets: BudgetSettings = BudgetSettings()
    ledger: LedgerSettings = LedgerSettings()


def read_teams(data: Mapping[str, Any], file: str, expand: Expand) -> TeamSettings:
    """`expand` fills in ${NAME}."""
    teams = {name: _grant(row, f"team.{name}", file) for name, row in _rows(data, "team", file)}
    keys = [_key(name, row, file, expand) for name, row in _rows(data, "key", file)]
    settings = TeamSettings(
        keys=tuple(keys),
        teams=teams,
        prices={model: _price(row, f"prices.{model}", file) for model, row in _rows(data, "prices", file)},
        budgets=_convert(data.get("budgets", {}), BudgetSettings, "budgets", file),
        ledger=_convert(data.get("ledger", {}), LedgerSettings, "ledger", file),
    )
    if settings.budgets.webhook:
        webhook = expand(settings.budgets.webhook, "budgets.webhook")
        if not webhook.startswith(("http://", "https://")):
            raise ConfigError(file, "budgets.webhook", "expected http(s)://...")
        settings = msgspec.structs.replace(settings, budgets=msgspec.structs.replace(settings.budgets, webhook=webhook))
    return settings


def _rows(data: Mapping[str, Any], name: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(file, name, f"expected a table, found {kind_of(table)}")
    for key, row in table.items():
        if not isinstance(row, dict):
            raise ConfigError(file, f"{name}.{key}", f"expected a table, found {kind_of(row)}")
    return list(table.items())


def _key(name: str, row: dict[str, Any], file: str, expand: Expand) -> FileKey:
    at, own = f"key.{name}", dict(row)
    secret, team, expires = own.pop("secret", ""), own.pop("team", ""), own.pop("expires", None)
    if not isinstance(secret, str) or not isinstance(team, str):
        raise ConfigError(file, at, "expected `secret` and `team` as texts")
    try:
        check_name(name)
    except ValueError as error:
        raise ConfigError(file, at, str(error)) from error
    ends = None if expires is None else _time(expires, f"{at}.expires", file)
    return FileKey(
        secret=expand(secret, f"{at}.secret"), name=name, team=team, grant=_grant(own, at, file), expires=ends
    )


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


def _grant(row: dict[str, Any], at: str, file: str) -> Grant:
    listed = {name: [row[name]] for name in ("models", "tools") if isinstance(row.get(name), str)}
    grant = _convert({**row, **listed}, Grant, at, file)
    try:
        return check_grant(grant)
    except ValueError as error:
        name, _, why = str(error).partition(": ")
        raise ConfigError(file, f"{at}.{name}", why) from error


def _price(row: dict[str, Any], at: str, file: str) -> ModelPrice | None:
    try:
        return read_price(row) if row else None
    except ValueError as error:
        raise ConfigError(file, at, str(error)) from error


def _convert(row: Any, kind: type[S], at: str, file: str) -> S:
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(file, at, str(error)) from error
