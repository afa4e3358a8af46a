"""Without one pass, which cases fail? A pass that nothing misses has no case, or no reason to be there.

`python -m tests.passes.test_mutation` prints the table.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.notes import Notes
from dragoman.passes import legal
from dragoman.passes.emulate import Undo
from dragoman.passes.rename import NOTHING
from dragoman.upstream.profiles import profile_for
from tests.passes.test_cases import CASES, dig, name, whole
from tests.passes.test_legal import TARGETS
from tests.passes.wires import complain, read, write


def same(request: Any, *args: Any, **kwargs: Any) -> Any:
    return request


WITHOUT: dict[str, Callable[..., Any]] = {
    "pair_calls": same,
    "name_results": same,
    "_declare_history": same,
    "fit_media": same,
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
    "set_results_apart": same,
    "drop_silent_turns": same,
    "move_result_media": same,
    "join_calls": same,
    "adapt_schemas": same,
    "fit_parameters": same,
    "limit_cache_marks": same,
    "rename": lambda request, *args: (request, NOTHING),
    "emulate": lambda request, *args: (request, Undo()),
}


def failing(monkeypatch: pytest.MonkeyPatch, step: str) -> list[str]:
    """The cases that notice, by number and name."""
    with monkeypatch.context() as patch:
        patch.setattr(legal, step, WITHOUT[step])
        if step in ("fit_media", "adapt_schemas"):
            patch.setattr(legal, "STEPS", tuple(s for s in legal.STEPS if s.__name__ != step))
        return [name(case) for case in CASES if not holds(case)]


def holds(case: Any) -> bool:
    _, source, body, kind, model, expected = case
    for target_kind, target in ((kind, model), *TARGETS):
        request = replace(read(source, whole(source, body)), model=target)
        profile = profile_for(target_kind, target)
        try:
            wire = write(request, profile, Notes())
        except (KeyError, ValueError, TypeError, IndexError):
            return False
        if complain(wire, profile, target):
            return False
        if (target_kind, target) == (kind, model) and any(dig(wire, path) != v for path, v in expected.items()):
            return False
    return True


@pytest.mark.parametrize("step", sorted(WITHOUT))
def test_every_pass_is_missed_by_a_case(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(monkeypatch, step) != []


if __name__ == "__main__":
    for step in WITHOUT:
        missed = failing(pytest.MonkeyPatch(), step)
        numbers = sorted({case.split()[0] for case in missed}, key=lambda n: (len(n), n))
        print(f"{step:28} {len(missed):4}  {' '.join(numbers)}")  # noqa: T201
