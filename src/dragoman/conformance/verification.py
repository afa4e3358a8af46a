"""`dragoman verify` without keys: every kind of server as a scripted provider, and the page with the results."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from dragoman.conformance.pages import GENERATED, table
from dragoman.conformance.report import GLYPHS
from dragoman.conformance.runner import VerifyCell, VerifyOptions, VerifyRun, verify
from dragoman.conformance.runner_targets import EIGHT, VerifyTarget, door_targets
from dragoman.conformance.scenario import Scenario, load_scenarios
from dragoman.gateway.access.auth import Access
from dragoman.gateway.access.client_keys import ClientKeys
from dragoman.gateway.app import App
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.process.server import Server, bind
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.log import Log
from dragoman.testing.provider import Provider
from dragoman.upstream.keys import Secret, origin_of
from dragoman.upstream.profiles import find_kind, load_rows
from dragoman.upstream.spec import Timeouts, Upstream

KEY = "scripted-key-0123456789"
CLIENT_KEY = "client-key-for-verification"
# A model of each kind that thinks, where it has rules of its own; the API path follows it (mission B6).
MODELS = {
    "openai": "gpt-5.2",
    "azure": "gpt-5.2",
    "anthropic": "claude-sonnet-4-6",
    "gemini": "gemini-2.5-flash",
    "vertex": "gemini-2.5-flash",
    "xai": "grok-4-1-fast-reasoning",
    "deepseek": "deepseek-chat",
    "mistral": "magistral-small-latest",
    "zai": "glm-4.6",
    "moonshot": "kimi-k2-thinking",
}
FRONTS = ("openai", "anthropic", "gemini", "ollama", "groq")  # the providers behind the gateway whose doors are tested


@asynccontextmanager
async def scripted_targets(kinds: Iterable[str]) -> AsyncIterator[list[VerifyTarget]]:
    """A strict scripted provider of each kind on loopback, and a target for each dialect it speaks."""
    async with AsyncExitStack() as stack:
        found = []
        for kind in kinds:
            row = find_kind(kind)
            keyed = row.auth != "none"
            model = MODELS.get(kind, f"{kind}-model")
            provider = Provider(kind, key=KEY if keyed else None, models=(model,))
            await stack.enter_async_context(provider)
            found += [
                VerifyTarget(
                    name=kind if len(row.dialects) == 1 else f"{kind} ({dialect})",
                    dialect=dialect,
                    base_url=provider.base_url,
                    model=model,
                    kind=kind,
                    auth=row.auth,
                    key=Secret(KEY, origin_of(provider.base_url)) if keyed else None,
                )
                for dialect in row.dialects
            ]
        yield found


@asynccontextmanager
async def gateway_targets(behind: Sequence[VerifyTarget]) -> AsyncIterator[list[VerifyTarget]]:
    """A gateway in this process in front of these targets, and a target for each door to each of them."""
    upstreams = tuple(_upstream(f"u{i}", target) for i, target in enumerate(behind))
    settings = Settings(upstreams=upstreams, port=0, client_keys=(CLIENT_KEY,))
    access = Access(ClientKeys(None, settings.client_keys), settings.hosts, settings.origins)
    gateway = Gateway(settings, access, log=Log("json", verbose=False))
    models = [target.model for target in behind]
    async with _serving(gateway) as url:
        yield [
            replace(door, name=f"{door.dialect} to {target.name}")
            for i, target in enumerate(behind)
            for door in door_targets(url, model=_routed(f"u{i}", target.model, models), key=CLIENT_KEY)
        ]


def _upstream(name: str, target: VerifyTarget) -> Upstream:
    dialects = find_kind(target.kind).dialects if target.kind else (target.dialect,)
    return Upstream(
        name=name,
        dialect=dialects[0],
        dialects=dialects,
        base_url=target.base_url,
        kind=target.kind or "compatible",
        auth=target.auth,
        models=(target.model,),
        keys=(target.key,) if target.key is not None else (),
        timeouts=Timeouts(connect_s=2.0, headers_s=30.0),
        overrides=target.overrides,
    )


def _routed(upstream: str, model: str, models: list[str]) -> str:
    """The model's name at the gateway, with the provider in front if two providers have it."""
    return model if models.count(model) == 1 else f"{upstream}/{model}"


@asynccontextmanager
async def _serving(gateway: Gateway) -> AsyncIterator[str]:
    listener = bind("127.0.0.1", 0)
    server = Server(gateway, App(gateway))
    work = asyncio.ensure_future(server.serve([listener]))
    try:
        while not server.started:
            if work.done():
                await work
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.end(at_once=True)
        await work
        await gateway.close()
        listener.close()


async def verify_scripted(
    kinds: Iterable[str] | None = None,
    *,
    scenarios: Sequence[Scenario] | None = None,
    options: VerifyOptions | None = None,
    doors: bool = False,
) -> VerifyRun:
    """The matrix over scripted providers; with `doors`, through a gateway in front of them."""
    chosen = tuple(kinds) if kinds is not None else tuple(load_rows().kinds)
    played = load_scenarios() if scenarios is None else scenarios
    how = options or VerifyOptions(timeout_s=20.0)
    async with scripted_targets(chosen) as targets:
        if not doors:
            return await verify(targets, played, how)
        async with gateway_targets(first_of_each(targets)) as through:
            return await verify(through, played, how)


def first_of_each(targets: Iterable[VerifyTarget]) -> list[VerifyTarget]:
    """One target for each kind, because the gateway chooses the dialect."""
    kinds: dict[str, VerifyTarget] = {}
    for target in targets:
        kinds.setdefault(target.kind, replace(target, name=target.kind or target.name))
    return list(kinds.values())


# ---------------------------------------------------------------- the page


async def verification_page() -> str:
    """docs/verification.md as the code makes it; takes some ten seconds."""
    eight = await verify_scripted(EIGHT)
    others = await verify_scripted([name for name in load_rows().kinds if name not in EIGHT])
    doors = await verify_scripted(FRONTS, doors=True)
    return page(eight, others, doors)


def page(eight: VerifyRun, others: VerifyRun, doors: VerifyRun) -> str:
    lines = ["# Verification", "", GENERATED, "", INTRO, ""]
    lines += ["## The eight providers of the mission", "", SCRIPTED, "", _totals(eight), "", *_matrix(eight), ""]
    lines += ["## The further profiles", "", _totals(others), "", *_matrix(others), ""]
    lines += ["## Through the gateway", "", THROUGH, "", _totals(doors), "", *_matrix(doors), ""]
    lines += ["## Why cells are grey", "", *_reasons(eight, others, doors), ""]
    lines += ["## Scenarios", "", *_scenarios(eight.scenarios), "", REAL]
    return "\n".join(lines) + "\n"


INTRO = """\
What `dragoman verify` finds, as far as it can be run without keys. **Nothing here was played against the vendors' own
servers**: with keys in the environment, `dragoman verify` prints the same table for those. ✓ passed, streamed and not;
✗ failed; · could not be asked (the reasons are below). The columns are the [scenarios](#scenarios) by number."""
SCRIPTED = """\
Scripted providers ([how strict they are](testing.md)) stand for the vendors: servers on loopback that refuse what the
vendor refuses, in its words, and answer with its oddities."""
THROUGH = """The same scenarios sent by a client of each dialect to a dragoman in front of scripted providers."""
REAL = """\
Against a real server: [llama.cpp](verification-real.md). What each conversion carries, feature by feature:
[each dialect to each](pairs.md), and field by field on the page of each dialect."""


def real_page(direct: VerifyRun, through: VerifyRun, server: str) -> str:
    """docs/verification-real.md: what a real server does by itself, and what its clients get through dragoman."""
    lines = ["# Verification: a real server", "", GENERATED_REAL, "", REAL_INTRO.format(server=server), ""]
    lines += ["## Directly", "", _totals(direct), "", *_matrix(direct), ""]
    lines += ["## Through dragoman", "", _totals(through), "", *_matrix(through), ""]
    lines += ["## Why cells are red or grey", "", *_reasons(direct, through)]
    return "\n".join(lines) + "\n"


GENERATED_REAL = "<!-- Generated by `python -m tests.real.page`. Do not edit. -->"
REAL_INTRO = """\
{server}
with a tiny model of our own (`tests/real`), which says nothing sensible: only the form of its answers is judged. Every
[scenario](verification.md#scenarios) goes over the server's own OpenAI Chat, Responses and Anthropic endpoints, and
through each door of a dragoman in front of it. CI fails when anything is worse through a door than it is directly, and
when this page is not what a run finds. ✓ passed, streamed and not; ✗ failed; · could not be asked."""


def _totals(run: VerifyRun) -> str:
    return f"**{run.count('PASS')} PASS, {run.count('FAIL')} FAIL, {run.count('SKIP')} SKIP**"


def _matrix(run: VerifyRun) -> list[str]:
    """Targets down, scenarios across by number: the page stays readable."""
    head = ["target", *(str(i + 1) for i in range(len(run.scenarios)))]
    rows = [[t.name, *(GLYPHS[run.cells[t.name, s.name].outcome] for s in run.scenarios)] for t in run.targets]
    return table(head, rows)


def _reasons(*runs: VerifyRun) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for cell in run.cells.values():
            if cell.outcome != "PASS":
                found.setdefault((cell.scenario, _steady(cell)), []).append(cell.target)
    rows = [(scenario, words, ", ".join(who)) for (scenario, words), who in found.items()]
    return table(("scenario", "reason", "where"), rows)


def _steady(cell: VerifyCell) -> str:
    """The reason without the words of the model, which are different in each run."""
    words = cell.words.partition(" (not JSON")[0]
    return words if cell.outcome == "SKIP" else f"FAIL: {words}"


def _scenarios(scenarios: Sequence[Scenario]) -> list[str]:
    rows = [(i + 1, f"`{s.name}`", s.title, " and ".join(s.modes)) for i, s in enumerate(scenarios)]
    return table(("", "scenario", "attempt", "how"), rows)
