"""Valkey or Redis: limits and cool-downs that many machines keep together."""
