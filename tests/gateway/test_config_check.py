"""A configuration that comes over HTTP tells nothing about our environment and our files, and costs little."""

import os
import tracemalloc
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.gateway.config.check import HIDDEN, MOST_CHARS, MOST_DOTS, MOST_DOTS_OF_LINE, check_text
from dragoman.gateway.config.provider_table import ProviderTable
from dragoman.gateway.config.schema import ConfigFile

VALUE = "Canary-value-of-the-environment"
ENV = {"SECRET": VALUE, "OPENAI_API_KEY": f"sk-{VALUE}", "HTTPS_PROXY": f"http://u:{VALUE}@127.0.0.1:1"}


def why(text: str) -> str:
    try:
        check_text(text, ENV)
    except ConfigError as error:
        return f"{error} {error.key} {error.why}"
    return ""


TOP = [f'{name} = "${{SECRET}}"' for name in ConfigFile.__struct_fields__]
OF_PROVIDER = [
    f"[providers.x]\n{'' if name == 'base_url' else more}{name} = {form}"
    for name in ProviderTable.__struct_fields__
    for more in ('base_url = "http://a"\n',)
    for form in ('"${SECRET}"', '["${SECRET}"]', '"{${SECRET}"')
]
DEEPER = [
    '[server]\nlog = "${SECRET}"',
    '[oidc]\nissuer = "${SECRET}"\naudience = "x"',
    '[oidc]\nissuer = "https://a"\naudience = "x"\njwks_url = "${SECRET}"',
    '[mcp.servers.x]\nurl = "${SECRET}"',
    '[mcp.servers.x]\ncommand = "${SECRET}"\ntransport = "${SECRET}"',
    '[budgets]\nwebhook = "${SECRET}"',
    '[budgets]\npolicy = "${SECRET}"',
    '[key.a]\nsecret = "${SECRET}"\nbudget = "${SECRET}"',
    '[[route]]\nto = "${SECRET}"\nwhen = {task = "${SECRET}"}',
    '[kind.x]\nbase_url = "${SECRET}"\ndialects = ["${SECRET}"]',
    '[aliases]\na = "${SECRET}"',
]


@pytest.mark.parametrize("text", [*TOP, *OF_PROVIDER, *DEEPER])
def test_no_message_quotes_a_variable(text: str) -> None:
    said = why(text).lower().replace("_", "-")
    assert VALUE.lower() not in said
    assert VALUE.lower()[:10] not in said


def test_what_is_wrong_is_named_with_the_reference() -> None:
    assert "found '${SECRET}'" in why('log = "${SECRET}"')
    assert "SECRETS is not set" in why('log = "${SECRETS}"')
    assert "found 'loud'" in why('log = "loud"')
    assert not why('[providers.x]\nbase_url = "http://a"\napi_key = "${OPENAI_API_KEY}"')


def test_a_value_that_only_its_text_makes_wrong_is_not_explained() -> None:
    """The name of the variable would be good here, as a key that is long enough."""
    with pytest.raises(ConfigError, match=HIDDEN[:20]):
        check_text('client_keys = ["${LONG_ENOUGH_A_NAME}"]', {"LONG_ENOUGH_A_NAME": "x"})


@pytest.mark.parametrize("name", ["ca_file", "client_cert", "client_key"])
def test_no_file_is_opened(name: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold the thread for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path / "missing"):
        check_text(f'[providers.x]\nbase_url = "https://a"\n{name} = "{path}"', ENV)
        check_text(f'[server.providers.x]\nbase_url = "https://a"\n{name} = "{path}"', ENV)


@pytest.mark.parametrize("word", ["a", '"a b"', "'a'", "a ", r'"\""'])
@pytest.mark.parametrize(
    "form", ["{} = 1", "[{}]", "x = {{ {} = 1 }}", "x = [\n{{{} = 1}}\n]", "x = {{a = '''a'''', {} = 1}}"]
)
def test_a_long_key_is_refused(form: str, word: str) -> None:
    """tomllib keeps every beginning of a key until the table ends: 200,000 words took all memory of the machine."""
    assert "dots" in why(form.format(".".join([word] * 30_000)))
    assert "dots" in why(form.format(".".join([word] * (MOST_DOTS_OF_LINE + 2))))


def test_the_worst_text_that_is_read_takes_little_memory() -> None:
    line = ".".join(["a"] * MOST_DOTS_OF_LINE)
    text = "\n".join(f"k{i}.{line} = 1" for i in range(MOST_DOTS // MOST_DOTS_OF_LINE))
    tracemalloc.start()
    try:
        assert "no such key" in why(text)
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_long_text_and_deep_tables_are_refused() -> None:
    assert "longer than" in why("#" * (MOST_CHARS + 1))
    assert why("x = " + "[" * 5000)
