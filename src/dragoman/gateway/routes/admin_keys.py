"""The admin API: keys, teams, the audit log, budgets, usage and the ledger."""

from contextlib import closing
from typing import Any

from dragoman.accounts import budgets, usage
from dragoman.accounts.grants import NO_GRANT, Account, check_future, check_team_name, make_holder
from dragoman.accounts.ledger import DETAILS, Ledger, Page
from dragoman.accounts.money import write_amount, write_time
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.routes.admin_types import (
    AdminRequest,
    Audit,
    Budgets,
    BudgetView,
    Done,
    EditKey,
    KeyMade,
    Keys,
    KeyView,
    NewKey,
    Teams,
    TeamView,
    UsageReport,
    missing,
)
from dragoman.gateway.stores.engines import open_budgets, open_ledger
from dragoman.gateway.stores.keys import KeyChange, KeyRow

SPAN = ("since", "until", "team", "key_name", "model", "upstream", "door", "currency", *DETAILS)
USUAL_ROWS = 100
MOST_ROWS = 1000  # in one answer


def list_keys(request: AdminRequest) -> Keys:
    table, keys = request.store.read(), request.gateway.now.access.keys
    rows = [_view(row) for row in table.rows] if table is not None else []
    return Keys(keys=[*rows, *view_file_keys(keys)])


def view_file_keys(keys: ClientKeys) -> list[KeyView]:
    """The keys of the configuration file."""
    return [
        KeyView(
            id=holder.id,
            name=key.name,
            admin=False,
            team=key.team,
            created=0.0,
            revoked=None,
            expires=key.expires,
            grant=key.grant,
            in_file=True,
        )
        for holder, key in keys.file_keys
    ]


def show_key(request: AdminRequest) -> KeyView:
    found = next((key for key in list_keys(request).keys if key.id == request.groups["id"]), None)
    return found or missing("key", request.groups["id"])


def new_key(request: AdminRequest) -> KeyMade:
    body: NewKey = request.body
    _check(request, body.team, body.expires)
    more = {"admin": body.admin, "team": body.team, "grant": body.grant, "expires": body.expires}
    key = request.store.new(body.name, **more, who=request.who)  # type: ignore[arg-type]  # as NewKey has them
    return KeyMade(id=key.split("-")[1], key=key)


def edit_key(request: AdminRequest) -> KeyView:
    body: EditKey = request.body
    _check(request, body.team, body.expires)
    change = KeyChange(name=body.name, team=body.team, expires=body.expires, grant=body.grant)
    row = request.store.edit(request.groups["id"], change, request.who)
    return _view(row) if row is not None else _missing_key(request)


def _check(request: AdminRequest, team: str | None, expires: float | None) -> None:
    """A ValueError for a team that does not exist, and for an end that has passed. An end of 0 is none."""
    if team:
        check_team_name(team, [one.name for one in list_teams(request).teams])
    if expires:
        check_future(expires, request.gateway.wall())


def _missing_key(request: AdminRequest) -> Any:
    """The error for a key that cannot be changed."""
    key_id, table = request.groups["id"], request.store.read()
    if any(row.id == key_id and row.revoked for row in (table.rows if table is not None else ())):
        words = f"the key {key_id} is revoked, which cannot be undone: make another one"
        raise UpstreamError(Failure(kind="invalid_request", status=409, message=words))
    return missing("key", key_id)


def rotate_key(request: AdminRequest) -> KeyMade:
    key = request.store.rotate(request.groups["id"], request.body.grace_s, request.who)
    return KeyMade(id=request.groups["id"], key=key) if key is not None else _missing_key(request)


def revoke_key(request: AdminRequest) -> Done:
    done = request.store.revoke(request.groups["id"], request.who)
    return Done(done=True) if done else _missing_key(request)


def list_teams(request: AdminRequest) -> Teams:
    table = request.store.read()
    file = request.gateway.now.settings.teams.teams
    stored = table.rows if table is not None else ()
    rows: list[KeyRow | KeyView] = [*stored, *view_file_keys(request.gateway.now.access.keys)]
    grants = {**(table.teams if table is not None else {}), **file}
    counts = {name: sum(row.team == name and not row.revoked for row in rows) for name in grants}
    return Teams(teams=[TeamView(name=name, grant=grant, keys=counts[name]) for name, grant in grants.items()])


def set_team(request: AdminRequest) -> TeamView:
    name = request.groups["name"]
    return TeamView(name=name, grant=request.store.set_team(name, request.body, request.who))


def drop_team(request: AdminRequest) -> Done:
    """With keys in it only if `force` says so: they would go on without its limits."""
    found = next((team for team in list_teams(request).teams if team.name == request.groups["name"]), None)
    if found is not None and found.keys and request.query.get("force") != "true":
        words = f"keys of the team {found.name} would lose its limits ({found.keys}): move them, or say force=true"
        raise UpstreamError(Failure(kind="invalid_request", status=409, message=words))
    done = request.store.drop_team(request.groups["name"], request.who)
    return Done(done=True) if done else missing("team", request.groups["name"])


def read_audit(request: AdminRequest) -> Audit:
    before = _number(request, "before", 0)
    return Audit(audit=request.store.read_audit(_limit(request), before or None))


def _view(row: KeyRow) -> KeyView:
    names = [name for name in KeyView.__struct_fields__ if name != "in_file"]
    return KeyView(**{name: getattr(row, name) for name in names})


def list_budgets(request: AdminRequest) -> Budgets:
    accounts = list(_accounts(request).values())
    now = request.gateway.wall()
    with closing(open_budgets(request.folder, request.gateway.database)) as store:
        store.expire(now)  # otherwise what a dead process had reserved is shown until the next request
        found = store.read(budgets.make_lines(accounts, now))
    return Budgets(budgets=[_budget(account, spent, now) for account, spent in zip(accounts, found, strict=True)])


def _accounts(request: AdminRequest) -> dict[str, Account]:
    """Every key and team with a budget."""
    table = request.store.read()
    teams = {team.name: team.grant for team in list_teams(request).teams}
    rows = [row for row in (table.rows if table is not None else ()) if row.revoked is None]
    holders = [make_holder(row.id, row.name, row.grant) for row in rows]
    holders += [holder for holder, _ in request.gateway.now.access.keys.file_keys]
    holders += [make_holder("", "", NO_GRANT, team=name, team_grant=grant) for name, grant in teams.items()]
    return {account.name: account for holder in holders for account in holder.budgeted}


def _budget(account: Account, spent: budgets.Spent, now: float) -> BudgetView:
    reset = budgets.find_reset(account.budget, now) if account.budget is not None else None
    return BudgetView(
        account=account.name,
        budget=str(account.budget),
        spent=write_amount(spent.micros),
        reserved=write_amount(spent.reserved),
        left=write_amount(spent.left),
        percent=spent.percent,
        resets=write_time(reset) if reset is not None else None,
    )


def read_usage(request: AdminRequest) -> UsageReport:
    by = [word.strip() for word in request.query.get("by", "team,model").split(",") if word.strip()]
    since, until, where = _span(request)
    with _ledger(request) as store:
        return UsageReport(usage=[line.sums for line in usage.make_report(store, by, since, until, where)])


def read_ledger(request: AdminRequest) -> Page:
    since, until, where = _span(request)
    with _ledger(request) as store:
        return store.page(since, until, where, request.query.get("cursor", ""), _limit(request))


def _ledger(request: AdminRequest) -> closing[Ledger]:
    return closing(open_ledger(request.folder, request.gateway.database))


def _span(request: AdminRequest) -> tuple[float, float, dict[str, str]]:
    now = request.gateway.wall()
    since = usage.read_since(request.query.get("since", "7d"), now)
    until = usage.read_since(request.query["until"], now) if "until" in request.query else now
    where = {name: request.query[name] for name in SPAN[2:] if name in request.query}
    if "key_name" in where:  # `key` would be a client's secret
        where["key"] = where.pop("key_name")
    return since, until, where


def _limit(request: AdminRequest) -> int:
    return min(_number(request, "limit", USUAL_ROWS), MOST_ROWS)


def _number(request: AdminRequest, name: str, usual: int) -> int:
    text = request.query.get(name)
    if text is not None and not (text.isdecimal() and len(text) < 16):
        raise ValueError(f"{name}: expected a whole number")
    return usual if text is None else int(text)
