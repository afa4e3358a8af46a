"""What the calls of the admin API send and get back, and one call as its function sees it."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from dragoman.accounts.grants import NO_GRANT, Grant, GrantChange
from dragoman.accounts.ledger import Sums
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.keys import AuditRow, KeyStore
from dragoman.gateway.stores.verify import ScenarioView, VerifyRunView, VerifyTargetView
from dragoman.gateway.telemetry.traffic_store import Latency


class NewKey(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    admin: bool = False
    team: str = ""
    grant: Grant = NO_GRANT
    expires: float | None = None  # seconds since 1970


class EditKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """A field that is left out keeps its value. `expires` 0: the key never expires."""

    name: str | None = None
    team: str | None = None
    expires: float | None = None
    grant: GrantChange = GrantChange()


class Rotate(Struct, kw_only=True, forbid_unknown_fields=True):
    grace_s: float = 0.0  # how long the old secret stays good


class KeyMade(Struct, kw_only=True):
    id: str
    key: str  # this is the only time that it can be read


class KeyView(Struct, kw_only=True):
    """A key as the admin API shows it: without its digest."""

    id: str
    name: str
    admin: bool
    team: str
    created: float
    revoked: float | None
    expires: float | None
    grant: Grant
    in_file: bool = False  # it is in the configuration file, and is changed there


class Keys(Struct, kw_only=True):
    keys: list[KeyView]


class TeamView(Struct, kw_only=True):
    name: str
    grant: Grant
    keys: int = 0


class Teams(Struct, kw_only=True):
    teams: list[TeamView]


class BudgetView(Struct, kw_only=True):
    account: str
    budget: str
    spent: str
    reserved: str
    left: str
    percent: int
    resets: str | None


class Budgets(Struct, kw_only=True):
    budgets: list[BudgetView]


class UsageReport(Struct, kw_only=True):
    usage: list[Sums]


class Audit(Struct, kw_only=True):
    audit: list[AuditRow]


class ConfigText(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str  # TOML; a secret of the file may stand as [kept:...]


class ConfigSave(Struct, kw_only=True, forbid_unknown_fields=True):
    text: str
    digest: str  # of the text that was edited


class ConfigVerdict(Struct, kw_only=True):
    good: bool
    why: str = ""
    key: str = ""
    line: int | None = None  # where


class ConfigVersion(Struct, kw_only=True):
    number: int  # when it was seen first, in milliseconds
    who: str
    text: str  # without secrets


class ConfigView(Struct, kw_only=True):
    source: str  # the file; "" without one
    text: str  # without secrets: each stands as [kept:...]
    digest: str
    generation: int
    versions: list[ConfigVersion]


class StartVerify(Struct, kw_only=True, forbid_unknown_fields=True):
    providers: list[str] = []  # none: all
    groups: list[str] = []  # of scenarios; none: all


class VerifyView(Struct, kw_only=True):
    available: bool
    scenarios: list[ScenarioView]
    targets: list[VerifyTargetView]
    runs: list[VerifyRunView]  # the newest first


class Done(Struct, kw_only=True):
    done: bool


class NewMcpServer(Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    url: str
    transport: Literal["", "auto", "http", "sse"] = ""


class Providers(Struct, kw_only=True):
    providers: dict[str, Any]
    latencies: dict[str, Latency]  # of the last hour, by provider


class AdminRequest(Struct, kw_only=True):
    """One call, with what its path, its query and its body say."""

    gateway: Gateway
    groups: dict[str, str]
    query: dict[str, str]
    body: Any
    who: str

    @property
    def store(self) -> KeyStore:
        store = self.gateway.now.access.keys.store
        if store is None:
            raise UpstreamError(Failure(kind="server_error", status=501, message="this gateway has no key store"))
        return store

    def note(self, what: str, subject: str, after: object) -> None:
        """Into the audit log, if there is one."""
        if self.gateway.now.access.keys.store is not None:
            self.store.note(self.who, what, subject, None, after)

    @property
    def folder(self) -> Path:
        path = self.gateway.now.settings.store_path
        if path is None:
            raise UpstreamError(Failure(kind="server_error", status=501, message="this gateway keeps nothing on disk"))
        return path.parent


def missing(kind: str, name: str) -> Any:
    raise UpstreamError(Failure(kind="not_found", status=404, message=f"there is no {kind} {name[:100]!r}"))
