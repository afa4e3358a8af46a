"""/health, /metrics and X-ray."""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.auth import PEER
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response, text_response
from dragoman.gateway.routes.table import Match
from dragoman.gateway.state import Gateway
from dragoman.gateway.telemetry.metrics import Counts, Gauge, Metrics
from dragoman.gateway.telemetry.xray import Xray, show_list, show_page, show_request
from dragoman.jsontypes import JsonObject, load_json
from dragoman.upstream.upstream_state import UpstreamState


async def serve_alive(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    return json_response({"status": "ok"})


async def serve_ready(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    if gateway.leaving:
        return json_response({"status": "draining"}, 503)
    return json_response({"status": "ok"})


async def serve_health(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """All details with a key; without one only that the gateway is alive (T44)."""
    access = gateway.now.access
    if http.client != PEER and access.admit(http, "client") and access.admit(http, "admin"):
        return json_response({"status": status_of(gateway)})
    health = _health(gateway)
    if gateway.peers is not None and http.client != PEER:
        others = [load_json(answer.body) for answer in await gateway.peers.ask_all(http) if answer.status == 200]
        health = _join_health(health, others, gateway.peers.count)
    return json_response(health)


def _join_health(health: JsonObject, others: list[JsonObject], count: int) -> JsonObject:
    """Numbers that workers have together are added up. Of what is wrong, the worst is shown, whichever worker has it.
    The rest is about this worker."""
    for other in others:
        health["running"] += other.get("running", 0) + 1  # the worker did not count our question
        for name, size in other.get("queue_sizes", {}).items():
            health["queue_sizes"][name] = health["queue_sizes"].get(name, 0) + size
        for name, row in other.get("providers", {}).items():
            own = health["providers"].get(name)
            if own is not None:
                for field in ("running", "sent", "failed"):
                    own[field] += row[field]
                own["breaker"] = _worse(own["breaker"], row["breaker"])
                for field in ("resting", "disabled"):
                    own["keys"][field] = max(own["keys"][field], row["keys"][field])
        health["state"]["status"] = _worse(health["state"]["status"], other["state"]["status"])
        health["keys"]["store"] = _worse(health["keys"]["store"], other["keys"]["store"])
        health["ledger"] = _worse(health["ledger"], other["ledger"])
        in_hand = [one["budgets_in_hand"] for one in (health, other) if one["budgets_in_hand"] is not None]
        health["budgets_in_hand"] = min(in_hand, default=None)
    health["workers"] = {"count": count, "answering": len(others) + 1}
    return health


_GOOD = {"off": 0, "unused": 1, "ok": 2, "closed": 2, "half_open": 3}  # any other word is a reason


def _worse(one: str, other: str) -> str:
    return max(one, other, key=lambda word: _GOOD.get(word, 4))


def _health(gateway: Gateway) -> JsonObject:
    now = gateway.clock()
    upstream_states = gateway.now.upstream_states
    return {
        "status": status_of(gateway),
        "uptime_s": round(gateway.wall() - gateway.started, 1),
        "running": gateway.metrics.running - 1,  # not counting this request
        "queue_sizes": {name: len(state.admission.queue) for name, state in upstream_states.items()},
        "rate_limits": {name: _limits(state, now) for name, state in upstream_states.items()},
        "providers": {name: describe_provider(state, now) for name, state in upstream_states.items()},
        "models": len(gateway.now.models),
        "keys": {"needed": gateway.now.access.keys.needed, "store": gateway.now.access.keys.look() or "ok"},
        "state": _state(gateway),
        "ledger": _ledger(gateway),
        "budgets_in_hand": gateway.books.in_hand if gateway.books is not None else None,
        "configuration": {"generation": gateway.now.number, "source": gateway.now.settings.source or None},
    }


def status_of(gateway: Gateway) -> str:
    return "draining" if gateway.leaving else "ok"


def _state(gateway: Gateway) -> JsonObject:
    """Where limits are kept, and under which share of them this process goes on while that place is away."""
    limits = gateway.limits
    return {"kept": limits.kept, "status": "away" if limits.away else "ok", "share": f"1/{limits.parts}"}


def _ledger(gateway: Gateway) -> str:
    """A process opens the ledger for the first request that it records."""
    if gateway.books is not None:
        return gateway.books.away or "ok"
    on = gateway.now.settings.teams.ledger.on
    return "unused" if on or (on is None and gateway.now.access.keys.needed) else "off"


def _limits(state: UpstreamState, now: float) -> JsonObject:
    admission = state.admission
    limits: JsonObject = {}
    for name, window in (("rpm", admission.rpm), ("tpm", admission.tpm)):
        if window is not None:
            limits[name] = {
                "limit": window.limit,
                "used": window.used(now),
                "free_in_s": round(window.wait_s(now), 2),
            }
    if admission.at_once is not None:
        limits["at_once"] = {"limit": admission.at_once, "used": admission.running_anywhere}
    return limits


def describe_provider(state: UpstreamState, now: float) -> JsonObject:
    spec = state.spec
    keys = state.keys.keys
    return {
        "kind": spec.kind or spec.dialect,
        "dialect": spec.dialect,
        "host": state.origin or None,
        "models": list(spec.models),
        "keys": {
            "count": sum(1 for key in keys if key.secret is not None),
            "resting": sum(1 for key in keys if key.rests_until > now),
            "disabled": sum(1 for key in keys if key.disabled),
        },
        "breaker": state.worst_state(),
        "running": state.admission.running,
        "sent": state.sent,
        "failed": state.failed,
    }


async def serve_metrics(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """The sum over all workers of this gateway."""
    peers = gateway.peers
    if peers is None:
        return _metrics_page(gateway.metrics, _gauges(gateway))
    peers.save()
    if http.client == PEER:
        counts = gateway.metrics.dump()
        counts.worker, counts.gauges = peers.number, _gauges(gateway, asked_by_client=0)
        return HttpResponse(200, msgspec.json.encode(counts))
    answers = [msgspec.json.decode(answer.body, type=Counts) for answer in await peers.ask_all(http)]
    gauges = _gauges(gateway)
    total = Metrics()
    for counts in [gateway.metrics.dump(), *answers, *peers.dead_counts({counts.worker for counts in answers})]:
        total.add(counts)
        gauges += counts.gauges
    return _metrics_page(total, _join(gauges))


def _metrics_page(metrics: Metrics, gauges: list[Gauge]) -> HttpResponse:
    text = metrics.text(sorted(gauges, key=lambda gauge: gauge[0]), HELP)
    return text_response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


def _join(gauges: list[Gauge]) -> list[Gauge]:
    """One value for all workers: the sum, or the maximum if all of them report the same thing."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name, labels, value in gauges:
        at = (name, tuple(labels.items()))
        found[at] = max(found.get(at, value), value) if name in HIGHEST else found.get(at, 0.0) + value
    return [(name, dict(labels), value) for (name, labels), value in found.items()]


HIGHEST = {
    "dragoman_breaker_open",
    "dragoman_keys_resting",
    "dragoman_config_generation",
    "dragoman_config_rejected",
    "dragoman_keys_not_read",
    "dragoman_ledger_away",
    "dragoman_state_away",
    "dragoman_state_losses",
}


def _gauges(gateway: Gateway, asked_by_client: int = 1) -> list[Gauge]:
    now = gateway.clock()
    gauges: list[Gauge] = [("dragoman_running", {}, float(gateway.metrics.running - asked_by_client))]
    for name, state in gateway.now.upstream_states.items():
        label = {"upstream": name}
        gauges.append(("dragoman_queue", label, len(state.admission.queue)))
        gauges.append(("dragoman_upstream_running", label, state.admission.running))
        gauges.append(("dragoman_breaker_open", label, float(state.worst_state() == "open")))
        gauges.append(("dragoman_keys_resting", label, sum(key.rests_until > now for key in state.keys.keys)))
    gauges.append(("dragoman_config_generation", {}, gateway.now.number))
    gauges.append(("dragoman_keys_not_read", {}, float(bool(gateway.now.access.keys.look()))))
    gauges.append(("dragoman_state_away", {}, float(bool(gateway.limits.away))))
    gauges.append(("dragoman_state_losses", {}, gateway.limits.losses))
    gauges.append(("dragoman_config_rejected", {}, gateway.rejected))
    gauges.append(("dragoman_log_dropped", {}, gateway.log.sink.dropped if gateway.log.sink else 0))
    known = gateway.known_turns
    gauges.append(("dragoman_known_turns_bytes", {}, known.bytes))
    gauges.append(("dragoman_known_turns_found", {"found": "yes"}, known.hits))
    gauges.append(("dragoman_known_turns_found", {"found": "no"}, known.misses))
    if gateway.books is not None:
        gauges.append(("dragoman_ledger_waiting", {}, gateway.books.waiting))
        gauges.append(("dragoman_ledger_away", {}, float(bool(gateway.books.away))))
    return [*gauges, *_process()]


HELP = {
    "dragoman_running": "requests that run now, besides this one",
    "dragoman_queue": "requests that wait for a place at an upstream",
    "dragoman_upstream_running": "requests an upstream works on",
    "dragoman_breaker_open": "is 1 while the breaker of an upstream is open",
    "dragoman_keys_resting": "keys that wait for a rate limit to pass",
    "dragoman_keys_not_read": "is 1 while the key store cannot be read and the last good copy holds",
    "dragoman_state_away": "is 1 while limits are not kept with other gateways, and this process has its share of them",
    "dragoman_state_losses": "how often the server of the limits went away, also for a moment",
    "dragoman_config_generation": "how often a configuration was read",
    "dragoman_config_rejected": "configurations that were refused",
    "dragoman_log_dropped": "log lines dropped because the log reader stalled",
    "dragoman_known_turns_bytes": "memory for turns of earlier requests",
    "dragoman_known_turns_found": "requests that began with turns of earlier requests, and other requests",
    "dragoman_ledger_waiting": "requests that are in the journal and not in the ledger yet",
    "dragoman_ledger_away": "is 1 while the ledger cannot be written and rows wait in the journal",
    "dragoman_tasks": "tasks of the event loop",
    "process_resident_memory_bytes": "memory in use",
    "process_open_fds": "open files and sockets",
    "python_gc_collections": "runs of the garbage collector",
}


def _process() -> Iterator[Gauge]:
    """The process, under the names of Prometheus' own clients; memory and files only where /proc exists."""
    yield "dragoman_tasks", {}, len(asyncio.all_tasks())
    for number, row in enumerate(gc.get_stats()):
        yield "python_gc_collections", {"generation": str(number)}, row["collections"]
    here = Path("/proc/self")
    if (here / "statm").exists():
        pages = int((here / "statm").read_text().split()[1])
        yield "process_resident_memory_bytes", {}, float(pages * os.sysconf("SC_PAGE_SIZE"))
        yield (
            "process_open_fds",
            {},
            float(len(list((here / "fd").iterdir())) - 1),
        )  # one of them is ours, for reading the folder


def _is_browser(http: HttpRequest) -> bool:
    return "text/html" in http.headers.get("accept", "")


async def serve_xray_list(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    rows = [
        {
            "id": r.id,
            "time": r.time,
            "door": r.door,
            "model": r.model,
            "upstream": r.upstream,
            "status": r.status,
            "s": r.seconds,
            "tries": len(r.tries),
            "calls": len(r.loop),
        }
        for r in gateway.xray.rows()
    ]
    others: list[JsonObject] = []
    if gateway.peers is not None and http.client != PEER:
        plain = HttpRequest("GET", http.path, client=http.client)
        for answer in await gateway.peers.ask_all(plain):
            others += load_json(answer.body)["requests"]
    if not _is_browser(http):
        return json_response({"requests": [*rows, *others]})
    foreign = [
        Xray(path="", seconds=row["s"], **{name: row[name] for name in ("id", "door", "model", "upstream", "status")})
        for row in others
    ]
    return show_list([*gateway.xray.rows(), *foreign], http.query)


async def serve_xray(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    found = gateway.xray.get(match.groups["id"])
    if found is not None:
        return await asyncio.to_thread(_show_xray, found, page=_is_browser(http))
    for answer in await gateway.peers.ask_all(http) if gateway.peers is not None else []:
        if answer.status == 200:
            return HttpResponse(200, answer.body, headers=answer.headers)
    words_ = "no such request is kept: send `x-dragoman-xray: 1` with it, or start with --xray N"
    raise UpstreamError(Failure(kind="not_found", status=404, message=words_))


def _show_xray(row: Xray, *, page: bool) -> HttpResponse:
    return show_request(row) if page else json_response(row.written())


HOME = """
<p>This is a gateway for language models. Your program sends a request in the protocol that it speaks. The gateway
translates it for the provider that has the model, and translates the answer back.</p>
<h2>Connect a program</h2>
<table>
<tr><th>it speaks<th>its base URL is this address and<th>key</tr>
<tr><td>OpenAI (Chat, Responses)<td><code>/v1</code><td rowspan=4>the gateway's, if it needs one; any word if not</tr>
<tr><td>Anthropic<td>nothing more</tr>
<tr><td>Gemini<td>nothing more</tr>
<tr><td>Ollama<td>nothing more</tr>
</table>
<p>A coding agent: <code>dragoman launch claude --model MODEL</code> (also codex, gemini, opencode, qwen).</p>
<h2>Look inside</h2>
<ul>
<li><a href="/console"><strong>The console</strong></a>: traffic, X-ray, playground, providers, keys, configuration</li>
<li><a href="/xray">X-ray</a> without a script: requests as clients sent them and as providers got them
(<code>--xray 50</code>)</li>
<li><a href="/v1/models">models</a>, <a href="/health">health</a>, <a href="/metrics">metrics</a></li>
</ul>
"""


async def serve_root(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    """A page for browsers. Ollama's clients look for its words here."""
    return show_page("dragoman", HOME) if _is_browser(http) else text_response("Ollama is running")
