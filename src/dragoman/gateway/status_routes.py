"""/health, /metrics and X-ray."""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response, text_response
from dragoman.gateway.state import Gateway
from dragoman.gateway.xray_page import show_list, show_request
from dragoman.jsontypes import JsonObject
from dragoman.upstream.upstream_state import UpstreamState


async def serve_alive(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return json_response({"status": "ok"})


async def serve_ready(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    if gateway.leaving:
        return json_response({"status": "draining"}, 503)
    return json_response({"status": "ok"})


async def serve_health(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    """Everything for who may come in; for anybody else, that it lives (T44)."""
    if gateway.now.doorman.admit(http, "client") and gateway.now.doorman.admit(http, "admin"):
        return json_response({"status": status_of(gateway)})
    now = gateway.clock()
    stations = gateway.now.stations
    return json_response(
        {
            "status": status_of(gateway),
            "uptime_s": round(gateway.wall() - gateway.started, 1),
            "running": gateway.metrics.running - 1,  # besides this one
            "queue_sizes": {name: len(station.gate.line) for name, station in stations.items()},
            "rate_limits": {name: _limits(station, now) for name, station in stations.items()},
            "providers": {name: _provider(station, now) for name, station in stations.items()},
            "models": len(gateway.now.models),
            "configuration": {"generation": gateway.now.number, "source": gateway.now.settings.source or None},
        }
    )


def status_of(gateway: Gateway) -> str:
    return "draining" if gateway.leaving else "ok"


def _limits(station: UpstreamState, now: float) -> JsonObject:
    gate = station.gate
    limits: JsonObject = {}
    for name, window in (("rpm", gate.rpm), ("tpm", gate.tpm)):
        if window is not None:
            limits[name] = {
                "limit": window.limit,
                "used": window.used(now),
                "free_in_s": round(window.wait_s(now), 2),
            }
    if gate.at_once is not None:
        limits["at_once"] = {"limit": gate.at_once, "used": gate.inside}
    return limits


def _provider(station: UpstreamState, now: float) -> JsonObject:
    spec = station.spec
    keys = station.keys.keys
    return {
        "kind": spec.kind or spec.dialect,
        "dialect": spec.dialect,
        "host": station.origin or None,
        "models": list(spec.models),
        "keys": {
            "count": sum(1 for key in keys if key.secret is not None),
            "resting": sum(1 for key in keys if key.rests_until > now),
            "disabled": sum(1 for key in keys if key.disabled),
        },
        "breaker": station.worst_state(),
        "running": station.gate.inside,
        "sent": station.sent,
        "failed": station.failed,
    }


async def serve_metrics(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    now = gateway.clock()
    gauges: list[tuple[str, dict[str, str], float]] = []
    for name, station in gateway.now.stations.items():
        label = {"upstream": name}
        gauges.append(("dragoman_queue", label, len(station.gate.line)))
        gauges.append(("dragoman_upstream_running", label, station.gate.inside))
        gauges.append(("dragoman_breaker_open", label, float(station.worst_state() == "open")))
        gauges.append(("dragoman_keys_resting", label, sum(key.rests_until > now for key in station.keys.keys)))
    gauges.append(("dragoman_config_generation", {}, gateway.now.number))
    gauges.append(("dragoman_config_rejected", {}, gateway.rejected))
    gauges.append(("dragoman_log_dropped", {}, gateway.log.sink.dropped if gateway.log.sink else 0))
    gauges += _process()
    text = gateway.metrics.text(sorted(gauges, key=lambda gauge: gauge[0]), HELP)
    return text_response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


HELP = {
    "dragoman_running": "requests that run now, besides this one",
    "dragoman_queue": "requests that wait for a place at an upstream",
    "dragoman_upstream_running": "requests an upstream works on",
    "dragoman_breaker_open": "1 while an upstream is left alone",
    "dragoman_keys_resting": "keys that wait for a rate limit to pass",
    "dragoman_config_generation": "how often a configuration was read",
    "dragoman_config_rejected": "configurations that were no good",
    "dragoman_log_dropped": "lines of the log nobody read in time",
    "dragoman_tasks": "tasks of the event loop",
    "process_resident_memory_bytes": "memory in use",
    "process_open_fds": "open files and sockets",
    "python_gc_collections": "runs of the garbage collector",
}


def _process() -> Iterator[tuple[str, dict[str, str], float]]:
    """The process itself, by the names Prometheus' own clients use; memory and files only where /proc tells."""
    yield "dragoman_tasks", {}, len(asyncio.all_tasks())
    for number, row in enumerate(gc.get_stats()):
        yield "python_gc_collections", {"generation": str(number)}, row["collections"]
    here = Path("/proc/self")
    if (here / "statm").exists():
        pages = int((here / "statm").read_text().split()[1])
        yield "process_resident_memory_bytes", {}, float(pages * os.sysconf("SC_PAGE_SIZE"))
        yield "process_open_fds", {}, float(len(list((here / "fd").iterdir())) - 1)  # one is for looking


def _is_browser(http: HttpRequest) -> bool:
    return "text/html" in http.headers.get("accept", "")


async def serve_xray_list(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    if _is_browser(http):
        return show_list(gateway.xray.rows(), http.query)
    rows = [
        {"id": r.id, "door": r.door, "model": r.model, "upstream": r.upstream, "status": r.status, "s": r.seconds}
        for r in gateway.xray.rows()
    ]
    return json_response({"requests": rows})


async def serve_xray(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    found = gateway.xray.get(words["id"])
    if found is None:
        words_ = "no such request is kept: send `x-dragoman-xray: 1` with it, or start with --xray N"
        raise UpstreamError(Failure(kind="not_found", status=404, message=words_))
    return show_request(found) if _is_browser(http) else json_response(found)


async def serve_root(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return text_response("Ollama is running")
