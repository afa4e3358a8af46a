"""OpenTelemetry: a collector on loopback reads with the official protobufs what a gateway sends."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import serving
from tests.gateway.house import faultline, say
from tests.gateway.test_faults import GOOD
from tests.gateway.web import post
from tests.waiting import wait_until

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BODY = {"model": "m", "messages": [{"role": "user", "content": "a secret word"}], "max_tokens": 9}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.raw = b""

    def take(self, path: str, data: bytes) -> None:
        self.raw += data
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(data)
            self.spans += [s for r in traces.resource_spans for scope in r.scope_spans for s in scope.spans]
        else:
            numbers = ExportMetricsServiceRequest.FromString(data)
            found = [m for r in numbers.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
            self.metrics.update({metric.name: metric for metric in found})


@contextmanager
def collecting() -> Iterator[tuple[str, Collector]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                data = gzip.decompress(data)
            collector.take(self.path, data)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", collector
        finally:
            server.shutdown()
            thread.join()


def values(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def run(folder: Path, url: str, upstream: str, **more: object) -> None:
    provider = {"base_url": upstream, "models": ["m"], "kind": "openai"}
    config = {"otel": url, "providers": {"far": provider}, **more}
    (folder / "config.json").write_text(json.dumps(config))
    with serving(folder) as running:
        assert post(running.url, "/v1/chat/completions", BODY, {"traceparent": PARENT}).status == 200
        running.process.terminate()
        wait_until(lambda: running.process.poll() is not None, "the end, which sends what is left")


def test_a_request_and_its_attempt_are_spans_of_the_clients_trace(tmp_path: Path) -> None:
    with faultline(GOOD) as line, collecting() as (url, collector):
        run(tmp_path, url, line.url)
        server, client = (next(s for s in collector.spans if s.kind == kind) for kind in (2, 3))
        assert server.trace_id.hex() == client.trace_id.hex() == PARENT.split("-")[1]
        assert server.parent_span_id.hex() == PARENT.split("-")[2]
        assert client.parent_span_id == server.span_id
        assert line.seen[0].headers["traceparent"] == f"00-{client.trace_id.hex()}-{client.span_id.hex()}-01"
        assert client.name == "chat m"
        said = values(client)
        assert said["gen_ai.operation.name"] == "chat"
        assert said["gen_ai.provider.name"] == "openai"
        assert said["gen_ai.request.model"] == "m"
        assert said["gen_ai.request.max_tokens"] == 9
        assert said["http.response.status_code"] == 200
        assert said["server.address"] == "127.0.0.1"
        asked = values(server)
        assert asked["http.response.status_code"] == 200
        assert (asked["url.scheme"], asked["url.path"]) == ("http", "/v1/chat/completions")
        assert said["gen_ai.response.finish_reasons"].values[0].string_value == "stop"
        for name in ("gen_ai.client.operation.duration", "gen_ai.client.inference.duration"):
            (point,) = collector.metrics[name].histogram.data_points
            assert point.count == 1
        assert b"secret word" not in collector.raw, "no text unless it is asked for"


def test_text_is_sent_when_it_is_asked_for(tmp_path: Path) -> None:
    with faultline(GOOD) as line, collecting() as (url, collector):
        run(tmp_path, url, line.url, otel_content=True)
        assert b"a secret word" in collector.raw


def test_a_failed_attempt_is_a_span_of_its_own(tmp_path: Path) -> None:
    with faultline(say(503, b"{}"), GOOD) as line, collecting() as (url, collector):
        run(tmp_path, url, line.url)
        failed, good = (values(span) for span in collector.spans if span.kind == 3)
        assert "error.type" in failed
        assert "error.type" not in good


def test_a_collector_that_is_away_costs_no_request(tmp_path: Path) -> None:
    with faultline(GOOD) as line:
        run(tmp_path, "http://127.0.0.1:1", line.url)
