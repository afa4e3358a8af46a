"""Upstreams: deciding where a request goes, and the one place that sends it."""
