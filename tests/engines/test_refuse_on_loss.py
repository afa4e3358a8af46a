"""`on_state_loss = "refuse"` from outside: /health names the server that is away, requests that cannot be
counted are refused, and all is well again when the server is back."""

import json
from pathlib import Path
from typing import Any

from dragoman.postgres.database import Database, migrate
from tests.cli.test_serve import Running, serving
from tests.engines.servers import Engine
from tests.engines.test_replicas import run_command
from tests.gateway.house import faultline
from tests.gateway.test_faults import GOOD
from tests.gateway.web import Got, post, send
from tests.waiting import wait_until

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LIMITED, FREE = "a-key-with-limits-000", "a-key-without-limits-0"


def ask(running: Running, key: str) -> Got:
    return post(running.url, "/v1/chat/completions", BODY, {"authorization": f"Bearer {key}"})


def write_config(folder: Path, url: str, grant: dict[str, Any], **more: Any) -> None:
    folder.mkdir()
    keys = {"ada": {"secret": LIMITED, **grant}, "bob": {"secret": FREE}}
    provider = {"base_url": url, "models": ["m"], "dialect": "openai_chat", "api_key": "sk-far-0123456789"}
    config = {"providers": {"far": provider}, "key": keys, "prices": {"*": {"input": 1, "output": 1}}, **more}
    config["on_state_loss"] = "refuse"
    (folder / "config.json").write_text(json.dumps(config))


class Watch:
    """What an admin sees of a gateway."""

    def __init__(self, folder: Path) -> None:
        made = run_command(folder, "keys", "new", "--name", "boss", "--admin")
        assert made.returncode == 0, made.stderr
        self.headers = {"authorization": f"Bearer {made.stdout.strip()}"}

    def health(self, running: Running) -> dict[str, Any]:
        found: dict[str, Any] = send(running.url, "GET", "/health", headers=self.headers).json
        return found

    def metrics(self, running: Running) -> list[str]:
        """Whole lines: the help of a metric may begin as its value does."""
        return send(running.url, "GET", "/metrics", headers=self.headers).text.splitlines()


def test_without_valkey_a_limited_key_is_refused_until_valkey_is_back(valkey: Engine, tmp_path: Path) -> None:
    with faultline(*[GOOD] * 50) as line:
        write_config(tmp_path / "one", line.url, {"rpm": 1000}, state=valkey.url)
        watch = Watch(tmp_path / "one")
        with serving(tmp_path / "one") as running:
            wait_until(lambda: ask(running, LIMITED).status == 200, "Valkey is new: it grants after two seconds")
            valkey.stop()
            wait_until(lambda: watch.health(running)["state"]["status"] == "away", "the gateway to see it")
            refused = ask(running, LIMITED)
            assert refused.status == 503
            assert float(refused.headers["retry-after"]) >= 1
            assert ask(running, FREE).status == 200, "what has no limit needs no Valkey"
            assert "dragoman_state_away 1" in watch.metrics(running)
            valkey.start()
            wait_until(lambda: watch.health(running)["state"]["status"] == "ok", "the gateway to see it")
            wait_until(lambda: ask(running, LIMITED).status == 200, "the limits to be granted again")
            assert "dragoman_state_away 0" in watch.metrics(running)


def test_without_postgres_a_key_with_a_budget_is_refused_until_postgres_is_back(
    postgres: Engine, tmp_path: Path
) -> None:
    database = Database(postgres.url)
    migrate(database)
    database.close()
    with faultline(*[GOOD] * 50) as line:
        write_config(tmp_path / "one", line.url, {"budget": "100 USD/month"}, database=postgres.url)
        watch = Watch(tmp_path / "one")
        with serving(tmp_path / "one") as running:
            wait_until(lambda: ask(running, LIMITED).status == 200, "the database to be asked")
            postgres.stop()
            wait_until(lambda: ask(running, LIMITED).status == 503, "the gateway to see it")
            refused = ask(running, LIMITED)
            assert "the budget of this key cannot be checked now" in refused.text
            assert float(refused.headers["retry-after"]) >= 1
            assert ask(running, FREE).status == 200, "its row waits in the journal"
            wait_until(lambda: "dragoman_ledger_away 1" in watch.metrics(running), "the metric")
            assert watch.health(running)["ledger"] != "ok", "it says why"
            wait_until(lambda: watch.health(running)["keys"]["store"] != "ok", "the keys' store to be seen away")
            assert "dragoman_keys_not_read 1" in watch.metrics(running)
            postgres.start()
            wait_until(lambda: ask(running, LIMITED).status == 200, "the budget to be checked again")
            wait_until(lambda: "dragoman_ledger_away 0" in watch.metrics(running), "the rows to be written")
            wait_until(lambda: watch.health(running)["keys"]["store"] == "ok", "the keys to be read again")
            assert watch.health(running)["ledger"] == "ok"
