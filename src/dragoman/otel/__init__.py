"""OpenTelemetry: traces and metrics of the gateway, sent by OTLP over HTTP."""
