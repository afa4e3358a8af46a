"""Reasoning state that the gateway keeps itself, for clients that bring nothing back (decision 3)."""

import asyncio

from msgspec.structs import replace

from dragoman.exchange import ClientRequest
from dragoman.gateway.scope import Scope
from dragoman.gateway.stores.reasoning_state import StateStore
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.reasoning_state.envelope import dump_state, load_state
from dragoman.reasoning_state.stored import (
    Conversation,
    find_bare_turns,
    make_state,
    read_conversation,
    restore_turns,
)


async def recall_turns(scope: Scope, client_request: ClientRequest) -> ClientRequest:
    """The request with the reasoning state of its turns, which its client did not bring back."""
    request, store = client_request.request, scope.gateway.state_store
    conversation = None if has_none_kept(scope, request) else scope.conversation
    if conversation is None:  # fast path: nothing kept
        return client_request
    restored = await asyncio.to_thread(_restore, store, scope.http.key_id, request, conversation)
    return client_request if restored is request else replace(client_request, request=restored, same_wire=False)


def has_none_kept(scope: Scope, request: Request) -> bool:
    """Whether there is no state to look for. From here on the scope knows what its client brought."""
    scope.bare = request
    conversation = find_conversation(scope) if not scope.gateway.state_store.is_empty() else None
    return conversation is None or not conversation.turns


def find_conversation(scope: Scope) -> Conversation | None:
    """The facts that distinguish the conversation of a request from others. They are read once, and only if needed."""
    if scope.conversation is None and scope.bare is not None:
        model = scope.now.plain_name(scope.bare.model)
        scope.conversation = read_conversation(scope.bare, model, by_id=scope.dialect.repeats_call_ids)
    return scope.conversation


def _restore(store: StateStore, owner: str, request: Request, conversation: Conversation) -> Request:
    bare = find_bare_turns(request, conversation)
    found = store.get(owner, list(bare.values()))
    loaded = ((i, load_state(found[key])) for i, key in bare.items() if key in found)
    return restore_turns(request, [(i, state) for i, state in loaded if state is not None])


async def keep_turn(scope: Scope, reply: Reply) -> None:
    """Keeps the reasoning state of an answer for the next request of a client that brings nothing back."""
    answer = scope.answer
    parts = reply.choices[0].parts if reply.choices else ()
    if answer is None or not parts:
        return
    state = make_state(parts, scope.state_source(answer))
    conversation = find_conversation(scope) if state is not None else None
    if state is not None and conversation is not None:
        key = conversation.key(parts, conversation.turns)
        await asyncio.to_thread(scope.gateway.state_store.put, scope.http.key_id, key, dump_state(state))
