"""Run by test_provider.py against a copy of the source that has the row of provider.toml."""

import os
from pathlib import Path

import dragoman
from dragoman.cli import main
from dragoman.dialects import find_dialect
from dragoman.exchange import ClientRequest
from dragoman.gateway.config.load import read_settings
from dragoman.notes import Notes
from dragoman.upstream.render import render
from dragoman.upstream.spec import Target
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

BODY = {
    "model": "lamp-1",
    "seed": 7,
    "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}],
}


def test_the_copy_is_what_runs() -> None:
    assert Path(dragoman.__file__).is_relative_to(os.environ["DRAGOMAN_RECIPE"])


def test_the_command_line_knows_it(capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["providers", "harbour"]) == 0
    assert "https://api.harbour.example/v1" in capsys.readouterr().out


def test_its_key_is_found_and_its_rules_are_kept() -> None:
    settings = read_settings({"providers": {"harbour": {}}}, "test", {"HARBOUR_API_KEY": "k"})
    (upstream,) = [spec for spec in settings.upstreams if spec.kind == "harbour"]
    chat = find_dialect("openai_chat")
    request = chat.decode_request(WireRequest(body=dragoman.convert(BODY, to="openai_chat").body), Notes())
    client_request = ClientRequest(dialect=chat, request=request, raw=b"", headers={}, notes=(), same_wire=False)
    state = UpstreamState(upstream, lambda: 0.0)
    call = render(client_request, state, Target(upstream, "lamp-1"), stream=False, refuse=frozenset())
    assert b'"seed"' not in call.body
    assert b'"role":"system"' in call.body
    assert {note.kind for note in call.notes} == {"dropped", "altered"}
