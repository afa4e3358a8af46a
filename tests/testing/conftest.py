"""The fixture that users get, for our own tests of it."""

from dragoman.testing.pytest_plugin import scripted

__all__ = ["scripted"]
