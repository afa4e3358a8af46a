"""Turns of a conversation that were seen before. Agents send the whole conversation again with every new turn.

If a body begins with the bytes of an earlier one, we cut the known turns out of it, and read and check only the short
body. Then we put the known turns back as the values that we read before (`join`). For the server we leave them out once
more: the passes see only the first turn and the new ones. The bytes that the known turns became at that server in an
earlier request are put between them (`Written`).

That gives the same bytes as the long way only if no pass and no encoder compares a new turn with a known one. So there
are three conditions. We cut only between a user turn and the next assistant turn, when each call has its result. Known
turns contain only texts, calls and results. `leaves_apart` says for which profiles the passes treat both kinds apart.
In every other case the functions return None, and the caller goes the long way. `tests/laws/test_known_turns.py`
compares both ways.

Of a new conversation, too, the settings and the tools are mostly those of an earlier request. They are known by their
text (`settings.py`, `tools.py`).
"""
