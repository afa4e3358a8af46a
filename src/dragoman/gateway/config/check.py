"""Checks a configuration that came over HTTP. Nothing else is done with it.

Its writer must not be able to read our environment or our files: no message quotes the value of a variable, and no file
or server that it names is opened. Python's TOML reader keeps every beginning of every dotted key, so we limit the dots:
a key of 200,000 words took all memory of the machine.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

from dragoman.errors import ConfigError
from dragoman.gateway.config.load import read_settings
from dragoman.upstream.discovery import NO_PROBE

NAME = "text"
MOST_CHARS = 256 * 1024
MOST_DOTS = 10_000
MOST_DOTS_OF_LINE = 200  # a key stands on one line
FILES = ("ca_file", "client_cert", "client_key")
HIDDEN = "does not fit here. Its value is not shown, because it may come from the environment"


def check_text(text: str, env: Mapping[str, str]) -> None:
    """Raises ConfigError if the text is not a valid configuration."""
    if len(text) > MOST_CHARS:
        raise ConfigError(NAME, "", f"is longer than {MOST_CHARS} characters")
    check_dots(text)
    try:
        data = without_files(tomllib.loads(text))
    except RecursionError as error:
        raise ConfigError(NAME, "", "is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(NAME, "", f"is not TOML: {error}") from error
    try:
        read_settings(data, NAME, {**env, NO_PROBE: "1"})
    except ConfigError as error:
        raise ConfigError(NAME, error.key, explain(data, error.key, env)) from None


def explain(data: dict[str, Any], key: str, env: Mapping[str, str]) -> str:
    """What is wrong, in words that quote `${NAME}` and not the value of the variable."""
    names = {name: f"${{{name}}}" for name in env}
    try:
        read_settings(data, NAME, {**names, NO_PROBE: "1"})
    except ConfigError as error:
        if error.key == key:
            return error.why
    return HIDDEN


def check_dots(text: str) -> None:
    if text.count(".") > MOST_DOTS:
        raise ConfigError(NAME, "", f"has more than {MOST_DOTS} dots")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS_OF_LINE:
            raise ConfigError(NAME, "", f"has more than {MOST_DOTS_OF_LINE} dots in line {number}: write it in several")


def without_files(value: Any) -> Any:
    """The tables without the names of certificates, which would be read."""
    match value:
        case dict():
            named = [name for name in FILES if isinstance(value.get(name), str)]
            return {name: without_files(item) for name, item in value.items() if name not in named}
        case list():
            return [without_files(item) for item in value]
        case _:
            return value
