"""`dragoman keys`: client and admin keys of the gateway. A key is shown once; only its digest is stored."""

import argparse
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dragoman.cli.arguments import add_action, add_actions
from dragoman.cli.style import paint
from dragoman.cli.table import TableColumn, find_width, fit, hang
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.accounts.grants import Grant, GrantChange
    from dragoman.gateway.routes.admin_types import KeyView
    from dragoman.gateway.stores.keys import KeyRow, KeyStore

NAME = "keys"
HELP = "make, list, change and revoke the gateway's client keys"
LIMITS = ("rpm", "tpm", "at_once", "soft")
WHICH = "its id, as `list` shows it, or its name"
NONE = "none"  # the word that removes a limit
EPILOG = (
    "`dragoman keys ACTION --help` explains one action. The keys are those of the gateway that runs on this machine. "
    "If none runs, they are in the folder of dragoman's state, or in the database of the configuration. "
    "DRAGOMAN_ADMIN_URL and DRAGOMAN_ADMIN_KEY name a gateway elsewhere."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = add_actions(parser)
    new = add_action(actions, "new", "make a key and show it once")
    new.add_argument("--name", default="", help="a name, for lists, the log and reports")
    new.add_argument("--admin", action="store_true", help="for /metrics, /xray and /admin, not for models")
    new.add_argument("--read-only", action="store_true", help="with --admin: sees everything and changes nothing")
    edit = add_action(actions, "edit", "change what a key may use; `none` takes a limit away")
    edit.add_argument("id", help=WHICH)
    edit.add_argument("--name", help="a name, for lists, the log and reports")
    for action in (new, edit):
        action.add_argument("--team", help="the team whose limits hold too")
        action.add_argument("--expires", metavar="90d", help="when it ends: 90d, 12h, or a day like 2027-01-31")
        add_limits(action)
    add_action(actions, "list", "list the keys by id")
    show = add_action(actions, "show", "show one key: what it may use, and what it has spent")
    show.add_argument("id", help=WHICH)
    rotate = add_action(actions, "rotate", "make a new secret for a key; its id and limits stay")
    rotate.add_argument("id", help=WHICH)
    rotate.add_argument("--grace", default="0s", metavar="1h", help="how long the old secret stays good (0s)")
    revoke = add_action(actions, "revoke", "revoke a key; a running gateway refuses it within a second")
    revoke.add_argument("id", help=WHICH)


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", metavar="'gpt-*,fast'", help="models that may be used, as patterns")
    parser.add_argument("--tools", metavar="'files/*'", help="MCP tools that may be used, as server/tool patterns")
    parser.add_argument("--rpm", metavar="60", help="requests a minute")
    parser.add_argument("--tpm", metavar="200000", help="tokens a minute")
    parser.add_argument("--at-once", metavar="5", help="requests at the same time")
    parser.add_argument("--budget", metavar="'20 USD/month'", help="per hour, day, week, month or total")
    parser.add_argument("--soft", metavar="80", help="percent of the budget at which a header and the webhook warn")
    parser.add_argument("--bodies", choices=("on", "off"), help="keep requests and answers in the ledger, masked")


def run(args: argparse.Namespace) -> int:
    from dragoman.cli.admin import open_store

    try:
        return act(args, open_store())
    except (ConfigError, ValueError) as error:
        print(f"{paint(f'dragoman {NAME}:', 'red', sys.stderr)} {error}", file=sys.stderr)
        return 1


def act(args: argparse.Namespace, store: "KeyStore") -> int:
    match args.what:
        case "new":
            if args.read_only and not args.admin:
                raise ValueError("--read-only: expected --admin beside it; other keys change nothing anyway")
            make_key(args, store)
        case "list":
            show_all(store)
        case "show":
            return show_one(args.id, store)
        case "edit":
            return edit(args, store)
        case "rotate":
            return rotate(args, store)
        case _:
            return revoke(find_good_id(args.id, store), store)
    return 0


def make_key(args: argparse.Namespace, store: "KeyStore") -> None:
    grant, team = make_grant(args), "" if args.team in (None, NONE) else args.team
    expires = read_end(args.expires) if args.expires not in (None, NONE) else None
    check_team(team, store)
    table = store.read()
    namesakes = [row.id for row in table.rows if row.name == args.name and not row.revoked] if table is not None else []
    key = store.new(args.name, admin=args.admin, team=team, grant=grant, expires=expires)
    print(key, flush=True)
    print(f"keep it: it is not shown again; {store.name} holds only a digest of it", file=sys.stderr)
    if args.name and namesakes:
        words = f"the key {', '.join(namesakes)} has the name {args.name} too: reports by key add them up"
        print(f"{words}; `dragoman keys edit {key.split('-')[1]} --name OTHER` changes it", file=sys.stderr)


def find_good_id(word: str, store: "KeyStore") -> str:
    """The id of a key that is not revoked. A ValueError says why there is none."""
    key_id, table = find_id(word, store), store.read()
    if any(row.id == key_id and row.revoked for row in (table.rows if table is not None else ())):
        raise ValueError(f"the key {word} is revoked, which cannot be undone: `dragoman keys new` makes another one")
    return key_id


def find_id(word: str, store: "KeyStore") -> str:
    """The id of a key by its id or its name. A ValueError says why there is none."""
    from dragoman.cli.admin import list_file_keys

    table = store.read()
    rows = table.rows if table is not None else ()
    if any(row.id == word for row in rows):
        return word
    named = [row for row in rows if row.name == word]
    ids = [row.id for row in named if not row.revoked] or [row.id for row in named]
    if len(ids) > 1:
        raise ValueError(f"{len(ids)} keys have the name {word}: give an id of {', '.join(ids)}")
    if not ids and any(word in (key.id, key.name) for key in list_file_keys(store)):
        raise ValueError(f"the key {word} is in the configuration file: change it there")
    if not ids:
        raise ValueError(f"no such key: {word}; `dragoman keys list` shows all")
    return ids[0]


def edit(args: argparse.Namespace, store: "KeyStore") -> int:
    from dragoman.gateway.stores.keys import KeyChange

    expires = None if args.expires is None else 0.0 if args.expires == NONE else read_end(args.expires)
    team = "" if args.team == NONE else args.team
    change = KeyChange(name=args.name, team=team, expires=expires, grant=read_change(args))
    if change == KeyChange():
        raise ValueError("nothing to change: expected an option such as --rpm 60")
    check_team(team or "", store)
    row = store.edit(find_good_id(args.id, store), change)
    if row is None:
        return no_such(args.id)
    print(describe(row))
    return 0


def check_team(team: str, store: "KeyStore") -> None:
    """A team that does not exist limits nothing. With a spelling mistake, a key would have no limits of its team."""
    from dragoman.accounts.grants import check_team_name
    from dragoman.cli.admin import read_teams

    if team:
        check_team_name(team, read_teams(store))


def rotate(args: argparse.Namespace, store: "KeyStore") -> int:
    from dragoman.accounts.money import read_duration_s

    try:
        grace_s = read_duration_s(args.grace)
    except ValueError as error:
        raise ValueError(f"--grace: {error}") from None
    key = store.rotate(find_good_id(args.id, store), grace_s)
    if key is None:
        return no_such(args.id)
    print(key, flush=True)
    old = f"the old secret is good for {args.grace} more" if grace_s else "the old secret is refused from now on"
    print(f"keep it: it is not shown again; {old}", file=sys.stderr)
    return 0


def revoke(key_id: str, store: "KeyStore") -> int:
    if not store.revoke(key_id):
        return no_such(key_id)
    print(f"{key_id} is revoked")
    table = store.read()
    if table is not None and all(row.revoked for row in table.rows):
        print("no key is left; keys stay needed: `dragoman keys new` makes one", file=sys.stderr)
    return 0


def no_such(key_id: str) -> int:
    print(f"{paint('dragoman keys:', 'red', sys.stderr)} no such key: {key_id}", file=sys.stderr)
    return 1


# ---------------------------------------------------------------- what the options say


def read_change(args: argparse.Namespace) -> "GrantChange":
    """Only the options that were set; a ValueError names the option that is wrong."""
    from dragoman.accounts.grants import GrantChange

    change: dict[str, Any] = {}
    for name in ("models", "tools"):
        value = getattr(args, name)
        if value is not None:
            words = tuple(word.strip() for word in value.split(",") if word.strip())
            change[name] = None if value == NONE else words
    for name in LIMITS:
        value = getattr(args, name)
        if value is not None:
            change[name] = None if value == NONE and name != "soft" else _whole(value, name)
    if args.budget is not None:
        change["budget"] = None if args.budget == NONE else args.budget
    if args.bodies is not None:
        change["bodies"] = args.bodies == "on"
    if getattr(args, "read_only", False):
        change["read_only"] = True
    return GrantChange(**change)


def make_grant(args: argparse.Namespace) -> "Grant":
    from dragoman.accounts.grants import NO_GRANT, change_grant

    return change_grant(NO_GRANT, read_change(args))


def _whole(value: str, name: str) -> int:
    plain = value.replace("_", "").rstrip("%")
    if not plain.isdigit():
        raise ValueError(f"--{name.replace('_', '-')}: expected a whole number, found {value!r}")
    return int(plain)


def read_end(text: str) -> float:
    """`90d` from now, or a day."""
    from dragoman.accounts.grants import check_future
    from dragoman.accounts.money import read_duration_s

    now = time.time()
    try:
        end = now + read_duration_s(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"--expires: expected 90d, 12h or a day like 2027-01-31, found {text!r}") from None
        end = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return check_future(end, now)


# ---------------------------------------------------------------- for people


def show_all(store: "KeyStore") -> None:
    from dragoman.cli.admin import list_file_keys

    table = store.read()
    rows: list[KeyRow | KeyView] = [*(table.rows if table is not None else ()), *list_file_keys(store)]
    if not rows:
        print("no keys. On this machine none is needed; `dragoman keys new` makes one", file=sys.stderr)
        return
    width = find_width()
    columns = [
        TableColumn("id"),
        TableColumn("name", cut=True),
        TableColumn("team", cut=True),
        TableColumn("kind", drop=1),
        TableColumn("state"),
    ]
    cells = [[_id(row), row.name, row.team, "admin" if row.admin else "client", _state(row)] for row in rows]
    head, *lines = fit(columns, cells, width)
    print(head)
    longest = max(map(len, lines))
    for row, line in zip(rows, lines, strict=True):
        print("\n".join(hang(line.ljust(longest), _limits(row), width)).rstrip())


def _id(row: "KeyRow | KeyView") -> str:
    """A key of the configuration file is changed there, so its id is of no use to a command."""
    return "in file" if getattr(row, "in_file", False) else row.id


def describe(row: "KeyRow | KeyView") -> str:
    kind = "admin" if row.admin else "client"
    team = [f"team {row.team}"] if row.team else []
    parts = [_id(row), kind, _day(row.created) if row.created else "", _state(row), row.name, *team, *_limits(row)]
    return "\n".join(hang("", [part for part in parts if part], find_width()))


def _state(row: "KeyRow | KeyView") -> str:
    if row.revoked:
        return "revoked"
    return "expired" if row.expires is not None and row.expires <= time.time() else "good"


def _limits(row: "KeyRow | KeyView") -> list[str]:
    ends = [f"until {_day(row.expires)}"] if row.expires is not None else []
    return [*describe_grant(row.grant), *ends]


def describe_grant(grant: "Grant") -> list[str]:
    from dragoman.accounts.grants import Grant
    from dragoman.accounts.money import read_budget

    words = [
        f"{name} {','.join(value) or 'none'}"
        for name in ("models", "tools")
        if (value := getattr(grant, name)) is not None
    ]
    numbers = {"rpm": grant.rpm, "tpm": grant.tpm, "at once": grant.at_once}
    words += [f"{name} {limit}" for name, limit in numbers.items() if limit is not None]
    if grant.budget is not None:
        words.append(str(read_budget(grant.budget)))
    flags = {f"soft {grant.soft}%": grant.soft != Grant().soft, "keeps bodies": grant.bodies}
    flags["read only"] = grant.read_only
    return words + [name for name, on in flags.items() if on]


def show_one(word: str, store: "KeyStore") -> int:
    from dragoman.cli.admin import list_file_keys, read_spent, read_teams
    from dragoman.gateway.stores.keys import KeyTable

    table = store.read() or KeyTable(pepper="")
    in_file = next((key for key in list_file_keys(store) if word in (key.id, key.name)), None)
    stored = [row.name for row in table.rows] + [row.id for row in table.rows]
    if in_file is not None and word not in stored:
        row: KeyRow | KeyView = in_file
    else:
        key_id = find_id(word, store)
        row = next(one for one in table.rows if one.id == key_id)
    print(describe(row))
    for line in read_spent(row, read_teams(store)):
        print(line)
    return 0


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
