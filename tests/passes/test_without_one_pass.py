"""Without one pass, which cases fail? A pass that nothing misses has no case, or no reason to be there.

`python -m tests.passes.test_without_one_pass` prints the table.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes import prepare
from dragoman.passes.emulate import Undo
from dragoman.passes.rename import NOTHING
from dragoman.passes.schemas.fit import Aliases
from dragoman.upstream.profiles import profile_for
from tests.passes.test_cases import CASES, dig, name, whole
from tests.passes.wires import complain, read, write


def same(request: Any, *args: Any, **kwargs: Any) -> Any:
    return request


WITHOUT: dict[str, Callable[..., Any]] = {
    "tell_server_history": same,
    "pair_calls": same,
    "name_results": same,
    "declare_history": same,
    "fit_media": same,
    "fit_pictures": same,
    "replay_reasoning": same,
    "fit_thinking": same,
    "require_echo": same,
    "begin_loops_with_thinking": same,
    "fit_forced_choice": same,
    "sign_calls": same,
    "fit_sampling": same,
    "say_developer_as_system": same,
    "place_system": same,
    "drop_empty_text": same,
    "drop_last_thoughts": same,
    "begin_with_user": same,
    "end_with_user": same,
    "strip_last_text": same,
    "join_turns": same,
    "join_apart": same,
    "put_results_first": same,
    "fit_turn_keys": same,
    "say_newer_settings": same,
    "say_newer_turns": same,
    "hand_on_shared": same,
    "set_results_apart": same,
    "drop_silent_turns": same,
    "move_result_media": same,
    "join_calls": same,
    "adapt_schemas": lambda request, *args: (request, Aliases()),
    "rename_arguments": same,
    "fit_parameters": same,
    "drop_lone_choice": same,
    "fit_cache_marks": same,
    "lift_marks": same,
    "fit_limits": same,
    "tell_failures": same,
    "drop_text_beside_calls": same,
    "answer_results": same,
    "mend_arguments": same,
    "spell_no_text": same,
    "drop_billing": same,
    "say_refusals_as_text": same,
    "drop_nulls": same,
    "open_window": same,
    "leave_nothing_behind": same,
    "rename": lambda request, *args: (request, NOTHING),
    "emulate": lambda request, *args, **kwargs: (request, Undo()),
}


def failing(monkeypatch: pytest.MonkeyPatch, step: str) -> list[str]:
    """The cases that notice, by number and name."""
    with monkeypatch.context() as patch:
        patch.setattr(prepare, step, WITHOUT[step])
        patch.setattr(prepare, "STEPS", tuple(s for s in prepare.STEPS if s.run.__name__ != step))
        patch.setattr(prepare, "_plans", {})
        return [name(case) for case in CASES if not holds(case)]


def holds(case: Any) -> bool:
    """Whether its own target gets what it should, and takes it."""
    _, _, _, kind, model, expected = case
    profile = profile_for(kind, model)
    try:
        wire = write(replace(decoded(case), model=model), profile, Notes())
    except (KeyError, ValueError, TypeError, IndexError):
        return False
    return not complain(wire, profile, model) and all(dig(wire, path) == value for path, value in expected.items())


_decoded: dict[int, Request] = {}


def decoded(case: Any) -> Request:
    """What no pass has touched is the same every time."""
    found = _decoded.get(id(case))
    if found is None:
        found = _decoded[id(case)] = read(case[1], whole(case[1], case[2]))
    return found


@pytest.mark.parametrize("step", sorted(WITHOUT))
def test_every_pass_is_missed_by_a_case(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(monkeypatch, step) != []


if __name__ == "__main__":
    for step in WITHOUT:
        missed = failing(pytest.MonkeyPatch(), step)
        numbers = sorted({case.split()[0] for case in missed}, key=lambda n: (len(n), n))
        print(f"{step:28} {len(missed):4}  {' '.join(numbers)}")  # noqa: T201
