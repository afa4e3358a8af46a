"""What several dialects share: names of files without one."""

import pytest

from dragoman.dialects._settings import name_document


@pytest.mark.parametrize(
    ("media_type", "name"),
    [
        (None, "document.pdf"),
        ("application/pdf", "document.pdf"),
        ("text/plain", "document.txt"),
        ("text/markdown", "document.md"),
        ("application/zip", "document"),
    ],
)
def test_a_file_without_a_name_has_one_that_tells_its_type(media_type: str | None, name: str) -> None:
    assert name_document(media_type) == name
