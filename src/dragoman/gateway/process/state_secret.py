"""The secret that authenticates the reasoning state which clients keep for the gateway (decision 3).

It outlives a restart, and all processes and machines that serve the same clients need the same one.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from dragoman.errors import ConfigError

VARIABLE = "DRAGOMAN_STATE_SECRET"
SHORTEST = 16
_BYTES = 32


def read_secret(configured: str, folder: Path, env: Mapping[str, str]) -> bytes:
    """From the configuration or the environment; else from a file of the state folder, which is made if need be."""
    said = configured or env.get(VARIABLE, "")
    if said:
        if len(said) < SHORTEST:
            raise ConfigError(VARIABLE, "state_secret", f"is shorter than {SHORTEST} characters")
        return said.encode()
    return _read_file(folder / "state.key")


def _read_file(path: Path) -> bytes:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _make_file(path)
        found = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read or made: {error.strerror}") from error
    if len(found) < SHORTEST:
        raise ConfigError(str(path), "", "is no secret: delete it, and a new one is made")
    return found


def _make_file(path: Path) -> None:
    """Whole or not at all: another process may read it at the same moment."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret counts
    finally:
        draft.unlink()
