"""What a process knows about an upstream."""

from dragoman.upstream.spec import Upstream
from dragoman.upstream.upstream_state import UpstreamState


def test_a_second_lesson_does_not_undo_the_first() -> None:
    state = UpstreamState(Upstream(name="u", dialect="openai_chat", base_url="http://localhost"), lambda: 0.0)
    state.remember("openai_chat", "m", {"rejects_extras": ("a",)})
    state.remember("openai_chat", "m", {"rejects_extras": ("b",), "schema": "gbnf"})
    assert state.learned["openai_chat", "m"] == {"rejects_extras": ("a", "b"), "schema": "gbnf"}
