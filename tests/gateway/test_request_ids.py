"""The ids that requests get."""

from dragoman.gateway.app import _Ids


def test_ids_are_unique_and_those_made_later_sort_later() -> None:
    now = 1_790_000_000.0
    ids = _Ids(lambda: now)
    early = [ids.next() for _ in range(_Ids.COUNT)]
    now += 1.0
    late = [ids.next() for _ in range(_Ids.COUNT)]
    assert len({*early, *late}) == 2 * _Ids.COUNT
    assert max(early) < min(late)
    assert {len(one) for one in early} == {8 + 2 * _Ids.SIZE}, "twelve bytes of chance behind the time"
