"""Configuration: both forms of seed 003, ours, none at all, and what is wrong where."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dragoman.errors import ConfigError
from dragoman.gateway import PORT
from dragoman.gateway.config.discover import discover
from dragoman.gateway.config.load import load_settings, read_settings
from dragoman.gateway.config.provider_table import ProviderTable
from dragoman.gateway.config.schema import ConfigFile, config_schema
from dragoman.gateway.config.settings import Settings
from dragoman.gateway.config.source import find_file
from dragoman.gateway.process.banner import banner
from dragoman.gateway.process.reload import reload
from dragoman.gateway.process.startup import ServeOptions, check_exposure, make_access, settle
from dragoman.gateway.state import Gateway
from dragoman.gateway.stores.sqlite_keys import open_key_store
from dragoman.gateway.telemetry.log import Log
from dragoman.upstream.admission import POLL_S, Admission, Ticket
from dragoman.upstream.routing import Routes, find_targets, list_models
from tests.gateway.house import state

LEGACY = {
    "api_key": "YOUR_GEMINI_API_KEY",
    "models": ["gemini-2.5-flash", "gemma-3-27b-it"],
    "rpm": 15,
    "http_port": 20006,
}
PROVIDERS = {
    "providers": {
        "gemini": {"api_key": "YOUR_GEMINI_API_KEY", "models": ["gemini-2.5-flash", "gemma-3-27b-it"], "rpm": 15},
        "openai": {"api_key": "YOUR_OPENAI_API_KEY", "models": ["gpt-4o", "gpt-4o-mini"], "rpm": 60},
    },
    "http_port": 20006,
}
ENV = {"DRAGOMAN_NO_PROBE": "1"}


def read(data: dict[str, Any], env: dict[str, str] | None = None) -> Settings:
    return read_settings(data, "config.json", env or ENV)


def test_the_legacy_form_of_the_seed_is_one_provider() -> None:
    settings = read(LEGACY)
    (gemini,) = settings.upstreams
    assert (gemini.name, gemini.kind, gemini.dialect, gemini.rpm) == ("gemini", "gemini", "gemini", 15)
    assert gemini.models == ("gemini-2.5-flash", "gemma-3-27b-it")
    assert len(gemini.keys) == 1
    assert settings.port == 20006


def test_the_providers_form_of_the_seed_derives_the_map() -> None:
    settings = read(PROVIDERS)
    routes = Routes(upstreams=settings.upstreams)
    assert list_models(routes) == {
        "gemini-2.5-flash": "gemini",
        "gemma-3-27b-it": "gemini",
        "gpt-4o": "openai",
        "gpt-4o-mini": "openai",
    }
    for model, upstream in (("o3-mini", "openai"), ("gemma-9", "gemini"), ("whatever", "gemini")):
        assert find_targets(routes, model, lambda: 0.0)[0].upstream.name == upstream


def test_the_port_is_20006_unless_said() -> None:
    assert read({"providers": {"openai": {"api_key": "k"}}}).port == PORT == 20006


def test_our_own_form_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(
        """
        log = "json"
        aliases = { fast = ["near/small", "gpt-4o"], claude-opus = "openai/gpt-4o" }
        [server]
        port = 8123
        client_keys = ["${DOOR_KEY}"]
        [providers.openai]
        api_keys = ["${ONE}", "two-two-two"]
        models = ["gpt-4o"]
        tpm = 10000
        weight = 2
        timeouts = { idle_s = 30 }
        [providers.near]
        kind = "vllm"
        base_url = "http://10.0.0.5:8000/v1"
        models = ["small"]
        at_once = 4
        headers = { x-team = "a" }
        profile = { rejects = ["seed"] }
        """
    )
    settings = load_settings(file, {**ENV, "ONE": "one-one-one", "DOOR_KEY": "a-long-enough-key-1"})
    openai, near = settings.upstreams
    assert len(openai.keys) == 2
    assert openai.keys[0].reveal("https://api.openai.com:443") == "one-one-one"
    assert (openai.tpm, openai.weight, openai.timeouts.idle_s) == (10_000, 2, 30)
    assert (near.base_url, near.auth, near.at_once, near.headers) == (
        "http://10.0.0.5:8000/v1",
        near.auth,
        4,
        {"x-team": "a"},
    )
    assert settings.aliases == {"fast": ("near/small", "gpt-4o"), "claude-opus": ("openai/gpt-4o",)}
    assert settings.client_keys == ("a-long-enough-key-1",)
    assert (settings.port, settings.log) == (8123, "json")


def test_a_server_of_no_known_kind_may_speak_any_dialect() -> None:
    for dialect in ("openai-chat", "anthropic", "gemini", "ollama", "openai_responses"):
        (spec,) = read({"providers": {"mine": {"base_url": "http://h:1", "dialect": dialect}}}).upstreams
        assert (spec.kind, spec.dialect) == ("compatible", dialect.replace("-", "_"))


@pytest.mark.parametrize(
    ("data", "key", "why"),
    [
        ({"providers": {"openai": {"api_key": "${NOT_SET}"}}}, "providers.openai.api_key", "NOT_SET is not set"),
        ({"providers": {"openai": {"api_kye": "k"}}}, "providers.openai.api_kye", "did you mean"),
        ({"providers": {"openai": {"api_key": 3}}}, "providers.openai.api_key", "found number"),
        ({"providers": {"openai": {"api_key": " "}}}, "providers.openai.api_key", "empty"),
        ({"providers": {"openai": {"api_key": "k", "rpm": "15"}}}, "providers.openai.rpm", "expected a whole number"),
        ({"providers": {"openai": {"api_key": "k", "rpm": 0}}}, "providers.openai.rpm", "at least 1"),
        ({"providers": {"openai": {"api_key": "k", "models": "x,y", "rpm": 1.5}}}, "providers.openai.rpm", "whole"),
        ({"providers": {"x": {"api_key": "k"}}}, "providers.x.base_url", "is needed for x; `dragoman providers` lists"),
        ({"providers": {"opnai": {"api_key": "k"}}}, "providers.opnai.base_url", "did you mean openai?"),
        ({"timeouts": {"idle_s": 3}}, "timeouts", "no such key; it is a key of providers.NAME"),
        ({"providers": {"x": {"base_url": "ftp://x"}}}, "providers.x.base_url", "http"),
        ({"providers": {"x": {"base_url": "http://u:p@x"}}}, "providers.x.base_url", "http"),
        ({"providers": {"x": {"kind": "nope"}}}, "providers.x.kind", "no such kind"),
        ({"providers": {"x": {"kind": "olama"}}}, "providers.x.kind", "did you mean ollama?"),
        ({"providers": {"x": {"kind": "vllm", "dialect": "klingon"}}}, "providers.x.dialect", "no such dialect"),
        ({"providers": {"x": {"kind": "vllm", "timeouts": {"ide_s": 1}}}}, "providers.x.timeouts.ide_s", "no such key"),
        ({"providers": {"x": {"kind": "vllm", "headers": {"a b": "c"}}}}, "providers.x.headers.a b", "header"),
        ({"providers": []}, "providers", "a table"),
        ({"providers": {"x": []}}, "providers.x", "a table"),
        ({"prividers": {}}, "prividers", "no such key"),
        ({"providers": {"openai": {"api_key": "k"}}, "http_port": 99999}, "http_port", "from 0 to 65535, found 99999"),
        ({"providers": {"openai": {"api_key": "k"}}, "client_keys": ["sk-1234"]}, "client_keys", "default"),
        ({"providers": {"openai": {"api_key": "k"}}, "client_keys": [""]}, "client_keys", "empty"),
        ({"providers": {"openai": {"api_key": "k"}}, "client_keys": ["short"]}, "client_keys", "shorter"),
        ({"providers": {"openai": {"api_key": "k"}}, "log": "xml"}, "log", "human or json"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        read(data)
    assert caught.value.key == key
    assert caught.value.file == "config.json"


@pytest.mark.parametrize(("name", "text"), [("a.toml", "x = ["), ("a.json", "{"), ("a.json", "[]"), ("a.json", "")])
def test_a_file_that_is_none_is_said_to_be(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        load_settings(tmp_path / name, ENV)


def test_a_value_with_a_dollar_from_elsewhere_stays_as_it_is() -> None:
    settings = read({"providers": {"openai": {"api_key": "${A}"}}}, {**ENV, "A": "${HOME}", "HOME": "x"})
    assert settings.upstreams[0].keys[0].reveal("https://api.openai.com:443") == "${HOME}"


def test_without_a_file_there_is_what_the_environment_has_and_the_demo() -> None:
    settings = discover({**ENV, "ANTHROPIC_API_KEY": "k1", "OPENAI_API_KEY": "k2"})
    assert [u.name for u in settings.upstreams] == ["openai", "anthropic", "demo"]
    assert [u.name for u in discover(ENV).upstreams] == ["demo"]


def test_a_file_is_found_by_name(tmp_path: Path) -> None:
    assert find_file(tmp_path, {}) is None
    (tmp_path / "config.json").write_text("{}")
    assert find_file(tmp_path, {}) == tmp_path / "config.json"
    (tmp_path / "dragoman.toml").write_text("")
    assert find_file(tmp_path, {}) == tmp_path / "dragoman.toml"
    assert find_file(tmp_path, {"DRAGOMAN_CONFIG": "/x/y.toml"}) == Path("/x/y.toml")


def test_another_address_needs_a_key(tmp_path: Path) -> None:
    env = state(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LEGACY))
    settings = settle(ServeOptions(config=file, host="0.0.0.0"), env)  # noqa: S104
    with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0 without client keys"):
        check_exposure(settings, make_access(settings, env))
    open_key_store(tmp_path).new("a", admin=False)
    check_exposure(settings, make_access(settings, env))


def test_a_good_file_replaces_the_old_one_and_a_bad_one_does_not(tmp_path: Path) -> None:
    env = state(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(PROVIDERS))
    options = ServeOptions(config=file)
    settings = settle(options, env)
    gateway = Gateway(settings, make_access(settings, env), log=Log())
    kept = gateway.now.upstream_states["gemini"]
    bad_files = ["", "{", "[]", '{"providers": {}, "x": 1}', '{"providers": {"openai": {"api_key": "${NOPE}"}}}']
    for bad in bad_files:
        file.write_text(bad)
        assert not reload(gateway, options, env)
        assert gateway.now.number == 1
    changed = json.loads(json.dumps(PROVIDERS))
    changed["providers"]["openai"]["rpm"] = 5
    file.write_text(json.dumps(changed))
    assert reload(gateway, options, env)
    assert gateway.now.number == 2
    assert gateway.now.upstream_states["gemini"] is kept, "what did not change keeps its windows"
    assert gateway.now.upstream_states["openai"].spec.rpm == 5


def admission_of(gateway: Gateway) -> Admission:
    found = gateway.now.upstream_states["far"].admission
    assert isinstance(found, Admission)
    return found


def test_a_limit_holds_over_a_reload_that_changes_it(tmp_path: Path) -> None:
    env, file = state(tmp_path), tmp_path / "config.json"
    options = ServeOptions(config=file)

    def write(**limits: int) -> None:
        file.write_text(json.dumps({"providers": {"far": {"base_url": "http://far.test", **limits}}}))

    write(rpm=2, at_once=1)
    settings = settle(options, env)
    gateway = Gateway(settings, make_access(settings, env), log=Log())
    one, two, three = (Ticket("a", 1) for _ in range(3))
    before = admission_of(gateway)
    assert before.arrive(one, 0.0) == "go"
    write(rpm=3, at_once=1)
    assert reload(gateway, options, env)
    after = admission_of(gateway)
    assert after.arrive(two, 0.0) == "wait", "one still runs"
    assert after.admit(0.0) == ([], POLL_S)
    before.leave(one, sent=True)
    assert after.admit(0.0) == ([two], None)
    after.leave(two, sent=True)
    write(rpm=2)
    assert reload(gateway, options, env)
    assert admission_of(gateway).arrive(three, 1.0) == "wait", "two were sent a second ago"


def test_the_start_up_says_which_key_is_missing(tmp_path: Path) -> None:
    settings = read({"providers": {"openai": {"models": ["m"]}, "near": {"base_url": "http://h:1"}}})
    text = banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))
    assert "(no key: set OPENAI_API_KEY or api_key)" in text
    assert text.count("no key") == 1


def test_a_server_on_this_machine_is_not_reported_to_lack_a_key(tmp_path: Path) -> None:
    data = {"providers": {"vllm": {"models": ["m"]}, "mine": {"kind": "vllm", "base_url": "http://127.0.0.1:9/v1"}}}
    settings = read(data)
    assert "no key" not in banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))


def test_the_start_up_says_how_an_address_and_aliases_are_written(tmp_path: Path) -> None:
    settings = read({"providers": {"openai": {"models": ["m"]}}, "host": "::1", "aliases": {"fast": "m"}})
    text = banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))
    assert "http://[::1]:20006/v1" in text
    assert "aliases        fast" in text


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({"providers": {"openai": {"models": ["m"]}}, "demo": True}, "m"),
        ({"providers": {"gemini": {}}, "demo": True}, "gemini-2.5-flash"),  # the usual one, as `launch` takes it
        ({"providers": {"x": {"base_url": "http://127.0.0.1:1/v1"}}, "demo": True}, "MODEL"),
        ({"demo": True}, "demo"),
        ({"providers": {"openai": {"models": ["m"]}}, "aliases": {"c-*": "m", "fast": "m"}}, "fast"),
    ],
)
def test_the_start_up_shows_a_model_that_exists(data: dict[str, Any], model: str, tmp_path: Path) -> None:
    settings = read(data)
    text = banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))
    assert f'{{"model": "{model}",' in text
    assert f"dragoman launch claude --model {model} " in text
    assert "/console (with bodies if you start with --xray 50)" in text


def test_the_start_up_says_where_what_and_how(tmp_path: Path) -> None:
    settings = read(PROVIDERS)
    text = banner(settings, make_access(settings, state(tmp_path)), state(tmp_path))
    for words in (
        "http://127.0.0.1:20006",
        "openai",
        "2 models",
        "/v1/messages",
        "not needed on this machine",
        "curl ",
    ):
        assert words in text
    assert "YOUR_" not in text


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**20, float("nan"), float("inf"), "", " ", "x", "${", "\x00", "😀"),
    *([], [None], [[]], ["x", 3], {}, {"a": 1}, {"a": None}, {"": {}}, {"a b": "c"}, {"x": {"y": []}}),
)


@pytest.mark.parametrize("key", sorted(ConfigFile.__struct_fields__))
def test_f51_whatever_stands_at_a_key_it_is_good_or_named(key: str) -> None:
    for value in ODD:
        with contextlib.suppress(ConfigError):
            read({"providers": {"openai": {"api_key": "k"}}, key: value})


@pytest.mark.parametrize("key", sorted(ProviderTable.__struct_fields__))
def test_f51_whatever_stands_at_a_key_of_a_provider_it_is_good_or_named(key: str) -> None:
    for value in ODD:
        for kind in ("openai", "azure", "mine", "demo"):
            with contextlib.suppress(ConfigError):
                read({"providers": {kind: {"api_key": "k", key: value}}})


def test_the_reader_refuses_what_the_schema_refuses() -> None:
    """One list of keys: what an editor marks by the schema is never good here."""
    checker = Draft202012Validator(config_schema())
    plain = [value for value in ODD if not re.search("None|nan|inf", repr(value))]  # no schema speaks of these
    top = [{key: value} for key in ConfigFile.__struct_fields__ if key != "server" for value in plain]
    rows = [{"providers": {"x": {key: value}}} for key in ProviderTable.__struct_fields__ for value in plain]
    wrong = [data for data in (*top, *rows) if not checker.is_valid(data)]
    assert 1000 < len(wrong) < len(top) + len(rows) - 200
    for data in wrong:
        with pytest.raises(ConfigError):
            read_settings(data, "dragoman.toml", ENV)
