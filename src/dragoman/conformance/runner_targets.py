"""The targets of `dragoman verify`: configured providers, any URL, or the doors of a gateway."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from dragoman.dialects import CLIENT_ONLY, SPOKEN, find_dialect
from dragoman.errors import ConfigError
from dragoman.gateway.config.load import load_settings
from dragoman.gateway.config.source import find_file
from dragoman.gateway.process.banner import missing_key
from dragoman.passes.profile import Profile
from dragoman.upstream.keys import Auth, Secret, origin_of
from dragoman.upstream.profiles import Kind, Rows, choose_dialect, find_kind, load_rows, profile_for
from dragoman.upstream.spec import DEMO, Upstream

# These are in the table even without a key (docs/mission.md, B1).
EIGHT = ("openai", "azure", "anthropic", "gemini", "xai", "ollama", "lmstudio", "gpustack")
DOORS = (*SPOKEN, *CLIENT_ONLY)

# Small and cheap ones, for when the configuration names none; the server's own list comes next.
MODELS = {
    "openai": "gpt-5-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash",
    "xai": "grok-4-1-fast-reasoning",
    "groq": "openai/gpt-oss-20b",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-chat",
}


class VerifyTarget(Struct, frozen=True, kw_only=True):
    """One model at one server, over one dialect."""

    name: str
    dialect: str
    base_url: str = ""
    model: str = ""  # "": the first the server lists
    kind: str = ""  # the row of profiles.toml; "": only the dialect is known
    auth: Auth = "none"
    key: Secret | None = None
    headers: dict[str, str] = {}
    overrides: dict[str, object] = {}
    rows: Rows | None = None  # the rows of its kind, if the user's file changes them
    stream_usage: bool = True
    gateway: bool = False  # it is a gateway, which takes the whole dialect: no pass changes the request
    skip: str = ""  # why it cannot be asked
    named: bool = False  # named on the command line, so it must answer
    absent: bool = False  # a server of this machine that does not run
    down: str = ""  # why a named one cannot be asked, which is a failure

    def profile(self, model: str, learned: Mapping[str, object] | None = None) -> Profile:
        if self.kind:
            return profile_for(self.kind, model, self.dialect, {**self.overrides, **(learned or {})}, self.rows)
        return find_dialect(self.dialect).profile


def configured_targets(
    config: Path | None, env: Mapping[str, str], folder: Path, dialects: Sequence[str] = ()
) -> list[VerifyTarget]:
    """Every provider of the configuration or the environment; without a file, the eight of mission B1 in any case.

    Each is asked over the dialect its model goes over, or over each of `dialects` that it speaks."""
    path = config or find_file(folder, env)
    settings = load_settings(path, env)
    wanted_dialects = [name.replace("-", "_").lower() for name in dialects]
    found = [target for up in settings.upstreams if up.kind != DEMO for target in targets_of(up, wanted_dialects)]
    if path is not None:
        return found
    there = {target.kind for target in found}
    missing = [_missing(find_kind(name)) for name in EIGHT if name not in there]
    return [*found, *missing]


def targets_of(upstream: Upstream, wanted_dialects: Sequence[str]) -> list[VerifyTarget]:
    """One provider, over the dialect its model goes over, or over each of `asked` that it speaks."""
    model = upstream.models[0] if upstream.models else MODELS.get(upstream.kind, "")
    spoken = upstream.dialects or (upstream.dialect,)
    known = upstream.kind in (upstream.rows or load_rows()).kinds
    usual = choose_dialect(upstream.kind, model, upstream.rows) if known else upstream.dialect
    chosen = (
        [name for name in spoken if name in wanted_dialects]
        if wanted_dialects
        else [usual if usual in spoken else upstream.dialect]
    )
    return [
        VerifyTarget(
            name=upstream.name if len(chosen) == 1 else f"{upstream.name} ({dialect})",
            dialect=dialect,
            base_url=upstream.base_url,
            model=model,
            kind=upstream.kind,
            auth=upstream.auth,
            key=upstream.keys[0] if upstream.keys else None,
            headers=upstream.headers,
            overrides=upstream.overrides,
            rows=upstream.rows,
            stream_usage=upstream.stream_usage,
            skip=missing_key(upstream) or "",
        )
        for dialect in chosen
    ]


def _missing(kind: Kind) -> VerifyTarget:
    local = kind.auth == "none"
    reason = f"nothing answers at {kind.base_url}" if local else f"no key: set {kind.keys[0]}"
    if "{" in kind.base_url:
        reason = f"no address: configure base_url for {kind.name}"
    return VerifyTarget(name=kind.name, dialect=kind.dialects[0], kind=kind.name, skip=reason, absent=local)


def url_targets(
    url: str,
    dialects: Iterable[str],
    *,
    model: str = "",
    key: str = "",
    kind: str = "",
    gateway: bool = False,
    name: str = "",
) -> list[VerifyTarget]:
    """Any server that speaks a dialect, for example another gateway."""
    found = []
    for name_of_dialect in dialects:
        dialect = name_of_dialect.replace("-", "_").lower()
        if dialect not in DOORS:
            raise ConfigError("--dialect", name_of_dialect, f"no such dialect; there are {', '.join(DOORS)}")
        if kind and dialect not in find_kind(kind).dialects:
            raise ConfigError("--kind", kind, f"does not speak {dialect}")
        auth: Auth = find_dialect(dialect).key_style if key else "none"
        if key and kind and not gateway:
            auth = find_kind(kind).auth if find_kind(kind).auth != "none" else auth
        found.append(
            VerifyTarget(
                name=f"{name or origin_of(url).rpartition('//')[2]} ({dialect})",
                dialect=dialect,
                base_url=url,
                model=model,
                kind=kind,
                auth=auth,
                key=Secret(key, origin_of(url)) if key else None,
                gateway=gateway,
                named=True,
            )
        )
    return found


def door_targets(url: str, *, model: str = "", key: str = "", name: str = "dragoman") -> list[VerifyTarget]:
    """A gateway, through each of its doors (the dialects that it serves)."""
    return url_targets(url, DOORS, model=model, key=key, gateway=True, name=name)
