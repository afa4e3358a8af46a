"""URLs of upstreams, as people see them."""

import pytest

from dragoman.upstream.keys import show_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a/v1", "http://a/v1"),
        ("http://a/v1?key=secret", "http://a/v1?key=..."),
        ("https://a?api-version=2024-10-21&key=secret=x", "https://a?api-version=...&key=..."),
        ("http://a?secret", "http://a?..."),
        ("", ""),
    ],
)
def test_the_values_of_a_query_are_not_shown(url: str, shown: str) -> None:
    """Some servers take a key there, and the start of the gateway and `dragoman check` print URLs."""
    assert show_url(url) == shown
