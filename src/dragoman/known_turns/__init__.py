"""Turns of a conversation that were seen before. Agents send the whole conversation again with every new turn.

A body that begins with the bytes of an earlier one is cut: the turns known from it are left out, and the short body is
read and checked. Then they are put back as the values they were before (`join`). On the way to a server they are left
out once more: the passes see the first turn, then the new ones, and what the known turns became at that server before
is put between them as bytes (`Written`).

That gives the same bytes as the long way only where no pass and no encoder looks from a new turn at a known one, or
back. So turns are cut only between a turn of the user and the assistant's next one, when each call has its result; they
hold nothing but texts, calls and results; and `leaves_apart` says which profiles let them alone. In every other case
the answer is None, and the caller goes the long way. `tests/laws/test_known_turns.py` compares both.
"""
