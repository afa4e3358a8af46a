"""Traces: one server span for a request, one client span for each attempt, one span for each tool that a loop runs.

Names are those of the GenAI conventions, which are in development and have a repository of their own by now:
https://github.com/open-telemetry/semantic-conventions-genai (docs/gen-ai/client-inference.md, read 2026-11-18). It has
new names for numbers; the older ones, which dashboards know, are sent beside them. Text of requests and answers is left
out unless it is asked for.
"""

import time
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman.jsontypes import dump_json
from dragoman.model.reply import Reply, Usage

if TYPE_CHECKING:
    from dragoman.gateway.http import HttpRequest
    from dragoman.gateway.scope import Scope
    from dragoman.upstream.attempts import Attempt

EXPORT_MS = 15_000
SEND_S = 3  # a process that ends waits at most this long until its spans are sent
LONGEST_TEXT = 32 * 1024
# Kinds of servers that have another name in the conventions.
PROVIDERS = {
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "moonshot": "moonshot_ai",
}
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_CHUNK_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_BUCKETS = {
    "gen_ai.client.operation.duration": _SECONDS,
    "gen_ai.client.token.usage": _TOKENS,
    "gen_ai.client.operation.time_to_first_chunk": _CHUNK_S,
    "gen_ai.client.inference.duration": _SECONDS,
    "gen_ai.client.inference.time_to_first_chunk": _SECONDS,
}
_REASONS = {"sequence": "stop", "context": "length", "filter": "content_filter"}
_PROPAGATOR = TraceContextTextMapPropagator()


class Traces:
    """The traces of a process. Threads send spans and metrics; while the collector is away, these are lost."""

    def __init__(self, endpoint: str, *, content: bool = False, scheme: str = "http") -> None:
        """`scheme`: what clients speak with this process."""
        base, version = endpoint.rstrip("/"), metadata.version("dragoman")
        resource = Resource.create({"service.name": "dragoman", "service.version": version})
        self.content, self.scheme = content, scheme
        self._spans = TracerProvider(resource=resource)
        self._spans.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=SEND_S))
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=SEND_S), EXPORT_MS
        )
        views = [
            View(instrument_name=name, aggregation=ExplicitBucketHistogramAggregation(bounds))
            for name, bounds in _BUCKETS.items()
        ]
        self._numbers = MeterProvider([reader], resource, views=views)
        self.tracer = self._spans.get_tracer("dragoman", version)
        meter = self._numbers.get_meter("dragoman", version)
        self.duration = meter.create_histogram("gen_ai.client.operation.duration", "s", "GenAI operation duration.")
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Number of tokens used.")
        self.first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk."
        )
        own = "gen_ai.client.inference"
        self.inference = meter.create_histogram(f"{own}.duration", "s", "Inference duration.")
        self.inference_chunk = meter.create_histogram(
            f"{own}.time_to_first_chunk", "s", "Time to receive the first chunk."
        )
        self.inference_tokens = {
            kind: meter.create_counter(f"{own}.usage.{kind}_tokens", "{token}", f"Number of {kind} tokens.")
            for kind in ("input", "output")
        }

    def begin(self, http: "HttpRequest", door: str) -> "Trace":
        return Trace(self, http, door)

    def close(self) -> None:
        """Sends what is left."""
        self._spans.shutdown()
        self._numbers.shutdown()


class Trace:
    """The spans of one request."""

    def __init__(self, traces: Traces, http: "HttpRequest", door: str) -> None:
        self._traces = traces
        parent = _PROPAGATOR.extract({name: http.headers[name] for name in _CARRIED if name in http.headers})
        self._span = traces.tracer.start_span(
            f"{http.method} {door}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": http.method,
                "url.path": http.path,
                "url.scheme": traces.scheme,
                "dragoman.door": door,
                "dragoman.request.id": http.id,
            },
        )
        self._context = set_span_in_context(self._span)
        self._attempts: list[tuple[Attempt, Any, int]] = []

    def start_attempt(self, attempt: "Attempt") -> dict[str, str]:
        """Begins the span of an attempt. Returns the headers that tell the upstream about it."""
        began = time.time_ns()
        span = self._traces.tracer.start_span(
            f"chat {attempt.model}", context=self._context, kind=SpanKind.CLIENT, start_time=began
        )
        self._attempts.append((attempt, span, began))
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span))
        return carrier

    def add_tool(self, name: str, call_id: str, seconds: float, *, failed: bool) -> None:
        """A tool that a loop has just run."""
        now = time.time_ns()
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}
        span = self._traces.tracer.start_span(
            f"execute_tool {name}", self._context, attributes=attributes, start_time=now - int(seconds * 1e9)
        )
        if failed:
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR))
        span.end(now)

    def finish(self, scope: "Scope") -> None:
        now = time.time_ns()
        for attempt, span, began in self._attempts:
            last = attempt is self._attempts[-1][0] and attempt.failure is None
            self._end_attempt(scope, attempt, span, began, now, answered=last)
        self._span.set_attributes(_known({"http.response.status_code": scope.status or None, **_of_key(scope)}))
        if scope.failure is not None or scope.status >= 500:
            failure = scope.failure
            self._span.set_attribute("error.type", (failure.code or failure.kind) if failure else str(scope.status))
        if scope.status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(now)

    def _end_attempt(
        self, scope: "Scope", attempt: "Attempt", span: Any, began: int, now: int, *, answered: bool
    ) -> None:
        common = describe_target(scope, attempt)
        end = now if attempt.seconds is None else began + int(attempt.seconds * 1e9)
        failed = attempt.failure or (scope.failure.code or scope.failure.kind if answered and scope.failure else None)
        if failed is not None:
            common["error.type"] = failed
            span.set_status(Status(StatusCode.ERROR))
        span.update_name(f"{common['gen_ai.operation.name']} {attempt.model}")
        span.set_attributes(common | _known({"http.response.status_code": attempt.status, **describe_request(scope)}))
        if answered:
            span.set_attributes(_known(describe_answer(scope)))
            if self._traces.content:
                span.set_attributes(_known(show_content(scope)))
        span.end(end)
        self._count(scope, common, (end - began) / 1e9, answered=answered)

    def _count(self, scope: "Scope", common: dict[str, Any], seconds: float, *, answered: bool) -> None:
        traces = self._traces
        inference = common["gen_ai.operation.name"] != "embeddings"
        traces.duration.record(seconds, common)
        if inference:
            traces.inference.record(seconds, common)
        if not answered:
            return
        used = count_tokens(scope.usage)
        for kind in ("input", "output"):
            if (count := used[kind]) is not None:
                traces.tokens.record(count, common | {"gen_ai.token.type": kind})
                if inference:
                    traces.inference_tokens[kind].add(count, common)
        if scope.first_s is not None:
            traces.first_chunk.record(scope.first_s, common)
            traces.inference_chunk.record(scope.first_s, common)


_CARRIED = ("traceparent", "tracestate")


def describe_target(scope: "Scope", attempt: "Attempt") -> dict[str, Any]:
    """Attributes of spans and metrics. Except for the model, their values come from the configuration."""
    state = scope.now.upstream_states.get(attempt.upstream)
    kind = (state.spec.kind or state.spec.dialect) if state is not None else ""
    _, _, address = (state.origin if state is not None else "").partition("://")
    host, _, port = address.rpartition(":")
    attributes = {
        "gen_ai.operation.name": "embeddings" if "embed" in scope.door else "chat",
        "gen_ai.provider.name": PROVIDERS.get(kind, kind or "unknown"),
        "gen_ai.request.model": attempt.model,
        "server.address": host or None,
        "server.port": int(port) if port else None,
    }
    return _known(attributes)


def describe_request(scope: "Scope") -> dict[str, Any]:
    request = scope.client_request.request if scope.client_request is not None else None
    if request is None:
        return {}
    return {
        "gen_ai.request.stream": True if request.stream else None,
        "gen_ai.request.max_tokens": request.max_output,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.request.top_k": request.top_k,
        "gen_ai.request.seed": request.seed,
        "gen_ai.request.frequency_penalty": request.frequency_penalty,
        "gen_ai.request.presence_penalty": request.presence_penalty,
        "gen_ai.request.stop_sequences": request.stop or None,
        "gen_ai.request.choice.count": request.choices if request.choices not in (None, 1) else None,
        "gen_ai.request.reasoning.level": request.reasoning.effort if request.reasoning is not None else None,
        "gen_ai.output.type": _OUTPUTS.get(request.output.type) if request.output is not None else None,
    }


_OUTPUTS = {"text": "text", "json": "json", "json_schema": "json"}


def describe_answer(scope: "Scope") -> dict[str, Any]:
    answer, usage = scope.answer, scope.usage or Usage()
    reply = answer.reply if answer is not None else None
    used = count_tokens(scope.usage)
    return {
        "gen_ai.response.id": reply.id if reply is not None else None,
        "gen_ai.response.model": reply.model if reply is not None else None,
        "gen_ai.response.finish_reasons": _finishes(reply) if reply is not None else None,
        "gen_ai.response.time_to_first_chunk": scope.first_s,
        "gen_ai.usage.input_tokens": used["input"],
        "gen_ai.usage.output_tokens": used["output"],
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }


def _finishes(reply: Reply) -> list[str] | None:
    reasons = [choice.finish.reason for choice in reply.choices if choice.finish is not None]
    return [_REASONS.get(reason, reason) for reason in reasons] or None


def count_tokens(usage: Usage | None) -> dict[str, int | None]:
    """Tokens as the conventions count them: input includes cached tokens, output includes reasoning."""
    used = usage or Usage()
    return {
        "input": _sum(used.input, used.cache_read, used.cache_write),
        "output": _sum(used.output, used.reasoning),
    }


def show_content(scope: "Scope") -> dict[str, Any]:
    """The text of the request, and of the answer if it was not streamed."""
    client_request, answer = scope.client_request, scope.answer
    reply = answer.reply if answer is not None else None
    return {
        "gen_ai.input.messages": _show(client_request.request.messages) if client_request is not None else None,
        "gen_ai.output.messages": _show([choice.parts for choice in reply.choices]) if reply is not None else None,
    }


def _show(value: object) -> str:
    return dump_json(to_builtins(value)).decode()[:LONGEST_TEXT]


def _of_key(scope: "Scope") -> dict[str, Any]:
    holder = scope.http.holder
    return {"dragoman.key": holder.id, "dragoman.team": holder.team or None} if holder is not None else {}


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
