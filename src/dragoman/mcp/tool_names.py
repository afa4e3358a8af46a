"""Names of tools: `server__tool` for providers, `server.tool` for people and for the text protocol."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Place: TypeAlias = tuple[str, str]  # a server's name and a tool's, each as its owner writes it
LONGEST = 64
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def name_tools(places: Iterable[Place]) -> dict[str, Place]:
    """A legal and unique name for each. It depends on the place alone, unless two places clash: then both tell which
    they are, so that a name never passes from one server to another."""
    wanted: dict[str, list[Place]] = {}
    for place in places:
        wanted.setdefault(_plain(place), []).append(place)
    named: dict[str, Place] = {}
    for name, owners in wanted.items():
        for owner in owners:
            named[name if len(owners) == 1 else _marked(name, owner)] = owner
    return named


def _plain(place: Place) -> str:
    joined = "__".join(place)
    name = _ODD.sub("_", joined)
    odd = name != joined and not re.search(r"[A-Za-z0-9]", name.replace("__", ""))
    return _marked(name, place) if odd or len(name) > LONGEST else name


def _marked(name: str, place: Place) -> str:
    mark = hashlib.sha256("\0".join(place).encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}_{mark}"


def find_place(said: str, named: Mapping[str, Place]) -> Place | None:
    """What a model means: the name it was given, `server.tool`, or a bare tool name only one server has."""
    if said in named:
        return named[said]
    dotted = {f"{server}.{tool}": (server, tool) for server, tool in named.values()}
    if said in dotted:
        return dotted[said]
    alike = [place for place in named.values() if said in (place[1], _ODD.sub("_", f"{place[0]}_{place[1]}"))]
    return alike[0] if len(alike) == 1 else None
