"""Descriptions from docstrings in three styles."""

import pytest

from dragoman.tools import FunctionTool
from dragoman.tools.docstrings import read_docstring

GOOGLE = """Finds a flight.

    Looks at every airline,
    and at trains.

    Args:
        start (str): where it
            begins
        end: where it ends: the town
        **options (int): more

    Returns:
        The flight.

    Raises:
        ValueError: never
    """
NUMPY = """Finds a flight.

    Looks at every airline,
    and at trains.

    Parameters
    ----------
    start : str
        where it
        begins
    end : str, optional
        where it ends: the town
    **options
        more

    Returns
    -------
    The flight.

    See Also
    --------
    other : thing
    """
REST = """Finds a flight.

    Looks at every airline,
    and at trains.

    :param start: where it
        begins
    :param str end: where it ends: the town
    :param options: more
    :type start: str
    :returns: The flight.
    :raises ValueError: never
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_every_style_gives_the_same_descriptions(text: str) -> None:
    doc = read_docstring(text)
    assert doc.description == "Finds a flight.\n\nLooks at every airline, and at trains."
    assert doc.arguments == {"start": "where it begins", "end": "where it ends: the town", "options": "more"}
    assert doc.returns == "The flight."


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("", ""),
        ("One line", "One line"),
        ("A list:\n\n- one\n- two", "A list:\n\n- one\n- two"),
        ("Note: this is no section\nof its own", "Note: this is no section of its own"),
        ("Args are not explained here", "Args are not explained here"),
        ("한국어 설명.\n\nArgs:\n    x: 값", "한국어 설명."),
    ],
)
def test_text_outside_of_sections_is_the_description(text: str | None, description: str) -> None:
    assert read_docstring(text).description == description


def test_a_tool_has_the_descriptions_of_its_docstring() -> None:
    def find(start: str, end: str = "Oslo") -> str:
        """Finds a flight.

        Args:
            start: where it begins
            end: where it ends
            other: not an argument at all
        """
        return start + end

    tool = FunctionTool(find).to_tool()
    assert (tool.name, tool.description) == ("find", "Finds a flight.")
    assert tool.parameters is not None
    properties = tool.parameters["properties"]
    assert properties == {
        "start": {"type": "string", "description": "where it begins"},
        "end": {"type": "string", "description": "where it ends", "default": "Oslo"},
    }
