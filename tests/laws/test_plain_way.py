"""A request that `leaves_alone` says is left alone is left alone by every pass, whatever its texts are.

What follows for a request through the gateway is held by tests/gateway/test_plain_way.py.
"""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.messages import Message, Text
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import leaves_alone, prepare
from dragoman.passes.profile import Profile
from dragoman.passes.system import BILLING
from dragoman.upstream.profiles import load_rows, profile_for
from tests.laws.snapshot.table import targets_of

WORDS = ("hi", " ", "\n", "\u00a0", "<think>", f"{BILLING} 1", "x" * 9000, "trailing ", "a@b.example")
texts = st.sampled_from(WORDS) | st.text(min_size=1, max_size=20)
messages = st.lists(
    st.builds(
        lambda role, text: Message(role=role, parts=(Text(text=text),)),
        st.sampled_from(("user", "system", "developer", "assistant")),
        texts,
    ),
    min_size=1,
    max_size=3,
)


@cache
def profiles() -> list[Profile]:
    """Of every kind of server, for models of the snapshot and for one that nothing is known of."""
    models = {target.partition("/")[2] for target in targets_of("requests") if "/" in target} | {"m"}
    return [
        profile_for(kind, model, row.dialects[0], {"native": native})
        for kind, row in load_rows().kinds.items()
        for model in sorted(models)
        for native in (True, False)
    ]


@pytest.mark.parametrize("part", range(4))
@settings(max_examples=20, deadline=None)
@given(turns=messages, warm=st.none() | st.floats(0, 3), most=st.none() | st.integers(-1, 10**6))
def test_a_request_that_is_left_alone_passes_unchanged(
    part: int, turns: list[Message], warm: float | None, most: int | None
) -> None:
    request = Request(model="m", messages=tuple(turns), temperature=warm, max_output=most)
    for profile in profiles()[part::4]:
        if leaves_alone(request, profile):
            notes = Notes()
            prepared = prepare(request, profile, notes)
            assert prepared.request == request, profile
            assert not len(notes)


def test_most_servers_take_a_question_as_it_is() -> None:
    request = Request(model="m", messages=(Message(role="user", parts=(Text(text="hi"),)),))
    found = [leaves_alone(request, profile) for profile in profiles()]
    assert sum(found) > len(found) / 2
