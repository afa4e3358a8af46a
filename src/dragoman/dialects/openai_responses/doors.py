"""The paths of OpenAI Responses: a response, and those that are kept."""

from dragoman.dialects._base import Door
from dragoman.dialects.openai_responses.count import PATH as COUNT_PATH
from dragoman.dialects.openai_responses.request import PATH

_STORED = rf"{PATH}/(?P<id>[\w.-]+)"

DOORS = (
    Door(path=PATH, name="responses"),
    Door(path=PATH, methods=("GET",), serves="websocket"),
    Door(path=f"{PATH}/compact", serves="compact"),
    Door(path=COUNT_PATH, serves="count"),
    Door(path=rf"{_STORED}/input_items", methods=("GET",), serves="stored_input"),
    Door(path=rf"{_STORED}/cancel", serves="stored_cancel"),
    Door(path=_STORED, methods=("GET",), serves="stored"),
    Door(path=_STORED, methods=("DELETE",), serves="forget"),
)
