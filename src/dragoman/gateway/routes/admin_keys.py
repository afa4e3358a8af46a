"""The admin API: keys, teams, the audit log, budgets, usage and the ledger."""

from contextlib import closing

from dragoman.accounts import budgets, usage
from dragoman.accounts.grants import NO_GRANT, Account, make_holder
from dragoman.accounts.ledger import DETAILS, Ledger, Page
from dragoman.accounts.money import write_amount, write_time
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


def list_keys(asked: AdminRequest) -> Keys:
    table, keys = asked.store.read(), asked.gateway.now.access.keys
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


def show_key(asked: AdminRequest) -> KeyView:
    found = next((key for key in list_keys(asked).keys if key.id == asked.groups["id"]), None)
    return found or missing("key", asked.groups["id"])


def new_key(asked: AdminRequest) -> KeyMade:
    said: NewKey = asked.body
    more = {"admin": said.admin, "team": said.team, "grant": said.grant, "expires": said.expires}
    key = asked.store.new(said.name, **more, who=asked.who)  # type: ignore[arg-type]  # as NewKey has them
    return KeyMade(id=key.split("-")[1], key=key)


def edit_key(asked: AdminRequest) -> KeyView:
    said: EditKey = asked.body
    change = KeyChange(name=said.name, team=said.team, expires=said.expires, grant=said.grant)
    row = asked.store.edit(asked.groups["id"], change, asked.who)
    return _view(row) if row is not None else missing("key", asked.groups["id"])


def rotate_key(asked: AdminRequest) -> KeyMade:
    key = asked.store.rotate(asked.groups["id"], asked.body.grace_s, asked.who)
    return KeyMade(id=asked.groups["id"], key=key) if key is not None else missing("key", asked.groups["id"])


def revoke_key(asked: AdminRequest) -> Done:
    done = asked.store.revoke(asked.groups["id"], asked.who)
    return Done(done=True) if done else missing("key", asked.groups["id"])


def list_teams(asked: AdminRequest) -> Teams:
    table = asked.store.read()
    file = asked.gateway.now.settings.teams.teams
    stored = table.rows if table is not None else ()
    rows: list[KeyRow | KeyView] = [*stored, *view_file_keys(asked.gateway.now.access.keys)]
    grants = {**(table.teams if table is not None else {}), **file}
    counts = {name: sum(row.team == name and not row.revoked for row in rows) for name in grants}
    return Teams(teams=[TeamView(name=name, grant=grant, keys=counts[name]) for name, grant in grants.items()])


def set_team(asked: AdminRequest) -> TeamView:
    name = asked.groups["name"]
    return TeamView(name=name, grant=asked.store.set_team(name, asked.body, asked.who))


def drop_team(asked: AdminRequest) -> Done:
    done = asked.store.drop_team(asked.groups["name"], asked.who)
    return Done(done=True) if done else missing("team", asked.groups["name"])


def read_audit(asked: AdminRequest) -> Audit:
    before = _number(asked, "before", 0)
    return Audit(audit=asked.store.read_audit(_limit(asked), before or None))


def _view(row: KeyRow) -> KeyView:
    names = [name for name in KeyView.__struct_fields__ if name != "in_file"]
    return KeyView(**{name: getattr(row, name) for name in names})


def list_budgets(asked: AdminRequest) -> Budgets:
    accounts = list(_accounts(asked).values())
    now = asked.gateway.wall()
    with closing(open_budgets(asked.folder, asked.gateway.database)) as store:
        found = store.read(budgets.make_lines(accounts, now))
    return Budgets(budgets=[_budget(account, spent, now) for account, spent in zip(accounts, found, strict=True)])


def _accounts(asked: AdminRequest) -> dict[str, Account]:
    """Every key and team with a budget."""
    table = asked.store.read()
    teams = {team.name: team.grant for team in list_teams(asked).teams}
    rows = [row for row in (table.rows if table is not None else ()) if row.revoked is None]
    holders = [make_holder(row.id, row.name, row.grant) for row in rows]
    holders += [holder for holder, _ in asked.gateway.now.access.keys.file_keys]
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


def read_usage(asked: AdminRequest) -> UsageReport:
    by = [word.strip() for word in asked.query.get("by", "team,model").split(",") if word.strip()]
    since, until, where = _span(asked)
    with _ledger(asked) as store:
        return UsageReport(usage=[line.sums for line in usage.make_report(store, by, since, until, where)])


def read_ledger(asked: AdminRequest) -> Page:
    since, until, where = _span(asked)
    with _ledger(asked) as store:
        return store.page(since, until, where, asked.query.get("cursor", ""), _limit(asked))


def _ledger(asked: AdminRequest) -> closing[Ledger]:
    return closing(open_ledger(asked.folder, asked.gateway.database))


def _span(asked: AdminRequest) -> tuple[float, float, dict[str, str]]:
    now = asked.gateway.wall()
    since = usage.read_since(asked.query.get("since", "7d"), now)
    until = usage.read_since(asked.query["until"], now) if "until" in asked.query else now
    where = {name: asked.query[name] for name in SPAN[2:] if name in asked.query}
    if "key_name" in where:  # `key` would be a client's secret
        where["key"] = where.pop("key_name")
    return since, until, where


def _limit(asked: AdminRequest) -> int:
    return min(_number(asked, "limit", USUAL_ROWS), MOST_ROWS)


def _number(asked: AdminRequest, name: str, usual: int) -> int:
    said = asked.query.get(name)
    if said is not None and not (said.isdecimal() and len(said) < 16):
        raise ValueError(f"{name}: expected a whole number")
    return usual if said is None else int(said)
