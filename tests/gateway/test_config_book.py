"""The configuration file in the console: no secret leaves, a bad text changes nothing, and there is a way back."""

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


def test_without_a_file_nothing_can_be_saved() -> None:
    with open_house() as house:
        assert get(house.url, "/admin/v1/config").json["source"] == ""
        found = post(house.url, "/admin/v1/config", {"text": "demo = true", "digest": ""}).json
        assert "dragoman init" in found["why"]
        assert get(house.url, "/admin/v1/config/schema").json["title"] == "dragoman.toml"
