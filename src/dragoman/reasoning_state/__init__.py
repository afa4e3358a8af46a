"""Opaque state of reasoning models: it goes out with an answer, and the next request brings it back."""
