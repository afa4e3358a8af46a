"""Three gateways behind nginx, with Valkey and PostgreSQL, under load, while each of them is killed and cut off.

`Street` starts everything. `Load` asks and remembers each request. `judge` reads what the provider, the ledger and the
budgets say afterwards, and compares. bench/replicas.py runs it for minutes, test_three_replicas.py for a short while.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import Struct

from dragoman.accounts.grants import Grant
from dragoman.accounts.ledger import LedgerRow
from dragoman.accounts.usage import all_rows
from dragoman.postgres.books import PostgresLedger
from dragoman.postgres.database import Database, PgConnection, migrate
from dragoman.postgres.key_store import PostgresKeyStore
from tests.engines.servers import Engine, TcpProxy, answers, postgres_server, valkey_server
from tests.ports import free_port
from tests.waiting import NEVER_S, until, wait_until

ROOT = Path(__file__).parent.parent.parent
REPLICAS = 3
SCARCE_RPM, ROB_RPM = 90, 60  # limits of an upstream and of a key
TOKENS = 50  # of each answer, at 1000 USD a million
TIA = 50  # requests that the budget of this key is good for
LEASE_S = 60  # as outside
NEAR_S = 0.5  # a connection breaks so soon after its process was killed
SPAN_S = 60.0
QUEUE_FULL = "the queue of scarce is full"
OWN_FAULTS = ("internal_error", "bookkeeper_failed", "read_failed", "encode_failed", "failure_unread")
CONFIG = """
host = "127.0.0.1"
log = "json"
deadline_s = 20
state = "{state}"
database = "{database}"
state_secret = "the-same-secret-for-all-of-them"
ask_models = false
[budgets]
lease_s = {lease_s}
[prices."*"]
input = 0
output = 1000
[providers.far]
kind = "vllm"
base_url = "{provider}/v1"
api_key = "none"
models = ["fast", "moody", "rob"]
[providers.scarce]
kind = "vllm"
base_url = "{provider}/v1"
api_key = "none"
models = ["scarce"]
rpm = {rpm}
queue = 3
"""
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}
# What clients do, and how often of a hundred.
KINDS = {"stream": 30, "whole": 20, "tools": 10, "left": 10, "moody": 10, "scarce": 10, "rob": 5, "tia": 5}
MAY_BE_REFUSED = {"moody", "scarce", "rob", "tia"}


class Asked(Struct):
    """One request of a client, and what became of it."""

    tag: str
    kind: str
    began: float
    ended: float = 0.0
    status: int = 0
    whole: bool = False  # the answer was read to its end
    replicas: str = ""  # the addresses that nginx tried
    by_nginx: bool = False  # no gateway has answered
    error: str = ""


class Replica:
    def __init__(self, number: int, folder: Path, valkey: int, postgres: int) -> None:
        self.number, self.folder, self.port = number, folder, free_port()
        self.links = {"valkey": TcpProxy(valkey), "postgres": TcpProxy(postgres)}
        self.process: subprocess.Popen[bytes] | None = None
        self.killed: list[float] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "dragoman", "serve", "--config", str(self.folder / "dragoman.toml")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "OPENAI_"))}
        env = {**kept, "DRAGOMAN_HOME": str(self.folder), "DRAGOMAN_NO_PROBE": "1"}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=log, stderr=log, env=env, cwd=self.folder
            )

    def end(self, sig: signal.Signals) -> None:
        assert self.process is not None
        if sig == signal.SIGKILL:
            self.killed.append(time.monotonic())
        self.process.send_signal(sig)

    def is_over(self) -> bool:
        return self.process is None or self.process.poll() is not None


class Street:
    """Everything that runs. `keys` are the secrets of the clients, by name."""

    def __init__(self, folder: Path, valkey: Engine, postgres: Engine, lease_s: int) -> None:
        self.folder, self.valkey, self.postgres, self.lease_s = folder, valkey, postgres, lease_s
        self.seen = folder / "seen"
        self.provider = free_port()
        self.port = free_port()
        self.replicas: list[Replica] = []
        self.keys: dict[str, str] = {}
        self.key_ids: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make_keys(self) -> None:
        database = Database(self.postgres.url)
        migrate(database)
        store = PostgresKeyStore(database, "postgres", self.folder)
        grants = {
            "ada": Grant(budget="100000 USD/month", rpm=100_000),
            "rob": Grant(rpm=ROB_RPM),
            "tia": Grant(budget=f"{TIA * TOKENS * 1000 / 1_000_000:g} USD/total"),
        }
        store.set_team("web", _as_change(Grant(budget="200000 USD/month")))
        for name, grant in grants.items():
            self.keys[name] = store.new(name, team="web", grant=grant)
            self.key_ids[name] = self.keys[name].split("-")[1]
        self.keys["boss"] = store.new("boss", admin=True)
        database.close()

    def start(self, stack: ExitStack) -> None:
        self.make_keys()
        provider = [sys.executable, str(Path(__file__).with_name("provider.py")), str(self.provider), str(self.seen)]
        stack.callback(_stop, subprocess.Popen(provider))
        for number in range(REPLICAS):
            folder = self.folder / f"replica-{number}"
            folder.mkdir()
            replica = Replica(number, folder, self.valkey.port, self.postgres.port)
            for link in replica.links.values():
                stack.enter_context(link)
            text = CONFIG.format(
                state=f"valkey://127.0.0.1:{replica.links['valkey'].port}/0",
                database=f"postgresql://postgres@127.0.0.1:{replica.links['postgres'].port}/postgres",
                provider=f"http://127.0.0.1:{self.provider}",
                rpm=SCARCE_RPM,
                lease_s=self.lease_s,
            )
            (folder / "dragoman.toml").write_text(text)
            self.replicas.append(replica)
            replica.start()
            stack.callback(_stop_replica, replica)
        stack.callback(_stop, subprocess.Popen(["nginx", "-c", str(self.write_nginx()), "-p", str(self.folder)]))
        wait_until(lambda: answers(self.provider) and answers(self.port), "provider and nginx")
        wait_until(lambda: all(answers(replica.port) for replica in self.replicas), "the gateways")

    def write_nginx(self) -> Path:
        """The file of deploy/, with our ports, and a header that says which gateways were tried."""
        text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
        servers = [line for line in text.splitlines() if "server gateway-" in line]
        ours = "\n".join(servers[0].replace("gateway-1:20006", f"127.0.0.1:{one.port}") for one in self.replicas)
        text = text.replace("\n".join(servers), ours)
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{self.port};")
        text = text.replace("proxy_buffering off;", "proxy_buffering off; add_header x-replica $upstream_addr always;")
        temps = "".join(
            f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        text = text.replace("http {", f"http {{ access_log off; {temps}", 1)
        user = "user root;" if os.geteuid() == 0 else ""
        head = f"{user} daemon off; pid {self.folder}/pid; error_log {self.folder}/nginx.log; worker_processes 1;\n"
        file = self.folder / "nginx.conf"
        file.write_text(head + text)
        return file

    def cut(self, engine: str, replicas: list[Replica] | None = None) -> None:
        for replica in replicas or self.replicas:
            replica.links[engine].cut()

    def mend(self, engine: str) -> None:
        for replica in self.replicas:
            replica.links[engine].mend()


def _as_change(grant: Grant) -> Any:
    from dragoman.accounts.grants import GrantChange

    return GrantChange(budget=grant.budget)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(NEVER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(NEVER_S)


def _stop_replica(replica: Replica) -> None:
    if replica.process is not None:
        _stop(replica.process)


@contextmanager
def open_street(lease_s: int = LEASE_S) -> Iterator[Street]:
    with ExitStack() as stack:
        valkey, postgres = stack.enter_context(valkey_server()), stack.enter_context(postgres_server())
        folder = Path(tempfile.mkdtemp())
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        street = Street(folder, valkey, postgres, lease_s)
        street.start(stack)
        yield street


# ---------------------------------------------------------------- the load


class Load:
    """Clients that ask through nginx, one request after the other each."""

    def __init__(self, street: Street, clients: int, seed: int = 1) -> None:
        self.street, self._clients, self._dice = street, clients, random.Random(seed)  # noqa: S311
        self.asked: list[Asked] = []
        self._session: aiohttp.ClientSession | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def __aenter__(self) -> "Load":
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    @property
    def done(self) -> int:
        return sum(one.ended > 0 for one in self.asked)

    def begin(self) -> None:
        self._tasks = [asyncio.create_task(self._go_on()) for _ in range(self._clients)]

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _go_on(self) -> None:
        while not self._stopping:
            kind = self._dice.choices(list(KINDS), list(KINDS.values()))[0]
            one = await self.ask(kind)
            if not one.whole and kind not in ("left", "stream"):
                await asyncio.sleep(0.2)  # as a client that was refused
            else:
                await asyncio.sleep(self._dice.random() * 0.3)

    async def ask(self, kind: str) -> Asked:
        one = Asked(f"n{len(self.asked)}", kind, time.monotonic())
        self.asked.append(one)
        model = kind if kind in ("moody", "scarce", "rob") else "fast"
        body: dict[str, Any] = {"model": model, "max_tokens": TOKENS}
        body["messages"] = [{"role": "user", "content": "hi"}]
        if kind in ("stream", "left"):
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if kind == "tools":
            body |= {"tools": [TOOL], "stream": bool(self._dice.randrange(2))}
        try:
            await self._send(one, body)
        except (aiohttp.ClientError, OSError) as error:
            one.error = f"{type(error).__name__}: {error}"
        one.ended = time.monotonic()
        if kind == "tools" and one.whole:
            await self._send_result()
        return one

    async def ask_of(self, replica: Replica, kind: str) -> None:
        """Asks one gateway, without nginx. It is no request of the load: it is not judged."""
        assert self._session is not None
        headers = {"authorization": f"Bearer {self.street.keys[kind]}"}
        body = {"model": "fast", "max_tokens": TOKENS, "messages": [{"role": "user", "content": "hi"}]}
        async with self._session.post(f"{replica.url}/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()

    async def _send_result(self) -> None:
        """The second turn of a conversation with a tool, at the Anthropic door."""
        one = Asked(f"n{len(self.asked)}", "whole", time.monotonic())
        self.asked.append(one)
        call = {"type": "tool_use", "id": "call_1", "name": "count", "input": {"n": 1}}
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": "1"}
        body = {
            "model": "fast",
            "max_tokens": TOKENS,
            "tools": [{"name": "count", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "count"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ],
        }
        try:
            await self._send(one, body, "/v1/messages")
        except (aiohttp.ClientError, OSError) as error:
            one.error = f"{type(error).__name__}: {error}"
        one.ended = time.monotonic()

    async def _send(self, one: Asked, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
        assert self._session is not None
        key = self.street.keys[one.kind if one.kind in ("rob", "tia") else "ada"]
        headers = {"authorization": f"Bearer {key}", "x-dragoman-tags": one.tag}
        async with self._session.post(self.street.url + path, json=body, headers=headers) as response:
            one.status, one.replicas = response.status, response.headers.get("x-replica", "")
            one.by_nginx = response.content_type == "text/html"
            if one.kind == "left":
                await response.content.readany()
                return  # the client closes the connection
            text = await response.read()
            one.whole = True
            if response.status >= 400:
                one.error = text.decode(errors="replace")[:300]
            elif body.get("stream") and b"[DONE]" not in text:
                one.whole, one.error = False, f"the stream has no end: {text[-200:].decode(errors='replace')}"


# ---------------------------------------------------------------- what is done to it

Pause = Callable[[float], Awaitable[None]]  # goes on for a while; the number says how long, of its own measure


class Chaos:
    def __init__(self, street: Street, load: Load, pause: Pause) -> None:
        self.street, self.load, self._pause = street, load, pause
        self.did: list[str] = []
        self.said_away: Counter[str] = Counter()

    async def kill(self, replica: Replica) -> None:
        self._say(f"kill -9 of gateway {replica.number}")
        replica.end(signal.SIGKILL)
        await until(replica.is_over, "the end of a gateway")
        await self._pause(1)
        replica.start()
        await self._until_ready(replica)

    async def restart(self, replica: Replica) -> None:
        """As an upgrade does it."""
        self._say(f"restart of gateway {replica.number}")
        replica.end(signal.SIGTERM)
        await until(replica.is_over, "the end of a gateway")
        replica.start()
        await self._until_ready(replica)

    async def restart_valkey(self) -> None:
        self._say("Valkey restarted, without its memory")
        self.street.valkey.stop()
        await self._pause(1)
        self.street.valkey.start()
        await self._until_well("state")

    async def stop_postgres(self, length: float) -> None:
        self._say("PostgreSQL stopped")
        await self._until_in_hand()
        self.street.postgres.stop()
        await self._pause(length)
        await self._hear_of_loss("keys")
        await until(self._start_postgres, "PostgreSQL's start")
        await self._until_well("keys")

    def _start_postgres(self) -> bool:
        from tests.real.llama import UnavailableError

        try:
            self.street.postgres.start()
        except UnavailableError:  # processes of the one before are still there
            return False
        return True

    async def cut(self, engine: str, length: float, only: Replica | None = None) -> None:
        self._say(f"network cut to {engine}{f' for gateway {only.number}' if only else ''}")
        if engine == "postgres":
            await self._until_in_hand()
        self.street.cut(engine, [only] if only else None)
        await self._pause(length)
        await self._hear_of_loss("state" if engine == "valkey" else "keys", only)
        self.street.mend(engine)
        await self._until_well("state" if engine == "valkey" else "keys")

    async def _until_in_hand(self) -> None:
        """Every gateway has a part of ada's and the team's budgets in hand, which it takes after two seconds of use.
        And it knows that tia's is spent: one that never heard of a budget cannot check it without the database."""
        for replica in self.street.replicas:
            await self._until(replica, lambda said: (said.get("budgets_in_hand") or 0) >= 2)
            await self.load.ask_of(replica, "tia")

    def _say(self, what: str) -> None:
        self.did.append(what)

    async def _health(self, replica: Replica) -> dict[str, Any]:
        session = self.load._session
        assert session is not None
        headers = {"authorization": f"Bearer {self.street.keys['boss']}"}
        try:
            async with session.get(f"{replica.url}/health", headers=headers) as response:
                found: dict[str, Any] = await response.json()
                return found
        except (aiohttp.ClientError, OSError):
            return {}

    async def _hear_of_loss(self, part: str, only: Replica | None = None) -> None:
        """/health tells of it."""
        for replica in [only] if only else self.street.replicas:
            await self._until(replica, lambda said: not is_well(said, part))
            self.said_away[part] += 1

    async def _until_well(self, part: str) -> None:
        for replica in self.street.replicas:
            await self._until(replica, lambda said: is_well(said, part))

    async def _until_ready(self, replica: Replica) -> None:
        await self._until(replica, lambda said: is_well(said, "state") and is_well(said, "keys"))

    async def _until(self, replica: Replica, fits: Callable[[dict[str, Any]], bool]) -> None:
        end = time.monotonic() + NEVER_S  # a gateway starts, on a machine that is busy
        while not fits(said := await self._health(replica)):
            assert time.monotonic() < end, f"gateway {replica.number} still says {said}"
            await asyncio.sleep(0.05)


def is_well(said: dict[str, Any], part: str) -> bool:
    if part == "state":
        return bool(said) and said["state"]["status"] == "ok"
    return bool(said) and said["keys"]["store"] == "ok"


# ---------------------------------------------------------------- the verdict


class Verdict(Struct, kw_only=True):
    asked: int
    by_kind: dict[str, dict[str, int]]
    broken: int  # requests that failed because their gateway was killed
    unexplained: list[str]
    busiest: dict[str, int]  # requests of the busiest 60 seconds, by limit
    over_limit: list[str]
    rows: int
    lost: list[str]  # answers without a row in the ledger
    doubled: list[str]
    budgets: dict[str, tuple[int, int, int]]  # account -> spent, by the ledger, still reserved
    wrong_budgets: list[str]
    own_faults: list[str]  # lines of the gateways' logs that tell of a bug of ours

    @property
    def faults(self) -> list[str]:
        return [
            *self.unexplained, *self.over_limit, *self.lost, *self.doubled, *self.wrong_budgets, *self.own_faults
        ]  # fmt: skip


async def judge(street: Street, load: Load) -> Verdict:
    """After the load has ended. Stops the gateways first."""
    for replica in street.replicas:
        replica.end(signal.SIGTERM)
    for replica in street.replicas:
        await until(replica.is_over, "the end of a gateway")
    database = Database(street.postgres.url)
    try:
        rows, found = await asyncio.to_thread(_settle_down, street, load, database)
    finally:
        database.close()
    broken, unexplained = explain(street, load)
    tags = Counter(row.tags for row in rows)
    finished = [one for one in load.asked if one.whole and not one.by_nginx]
    by_kind = {
        kind: dict(Counter(str(one.status) if one.whole else "cut" for one in load.asked if one.kind == kind))
        for kind in KINDS
    }
    budgets = {account: (micros, _by_ledger(account, rows, street), held) for account, micros, held in found}
    busiest = {
        f"upstream scarce, {SCARCE_RPM} a minute": _busiest(_arrivals(street, "scarce")),
        f"key rob, {ROB_RPM} a minute": _busiest(_arrivals(street, "rob")),
    }
    most = int(TIA * TOKENS * 1000)
    tia = budgets.get(f"key:{street.key_ids['tia']}", (0, 0, 0))
    return Verdict(
        asked=len(load.asked),
        by_kind=by_kind,
        broken=broken,
        unexplained=unexplained,
        busiest=busiest,
        over_limit=[
            f"{name}: {count} in 60 s"
            for (name, count), limit in zip(busiest.items(), (SCARCE_RPM, ROB_RPM), strict=True)
            if count > limit
        ],
        rows=len(rows),
        lost=[f"lost: {one}" for one in finished if not tags[one.tag]],
        doubled=[f"doubled: {tag}" for tag, count in tags.items() if tag and count > 1],
        budgets=budgets,
        wrong_budgets=[
            f"{account}: {micros} spent, {by_rows} by the ledger, {held} reserved"
            for account, (micros, by_rows, held) in budgets.items()
            if micros != by_rows or held
        ]
        + ([f"tia has spent {tia[0]} of {most}"] if tia[0] > most else []),
        own_faults=[line for replica in street.replicas for line in find_own_faults(replica)],
    )


def find_own_faults(replica: Replica) -> list[str]:
    lines = (replica.folder / "log").read_text(errors="replace").splitlines()
    return [line for line in lines if any(f'"{event}"' in line for event in OWN_FAULTS) or "Traceback" in line]


def _settle_down(street: Street, load: Load, database: Database) -> tuple[list[LedgerRow], list[tuple[str, int, int]]]:
    ledger = PostgresLedger(database)
    finished = {one.tag for one in load.asked if one.whole and not one.by_nginx}

    async def work(connection: PgConnection) -> list[tuple[str, int, int]]:
        await connection.fetchval("select dragoman.expire($1)", time.time() + 2 * street.lease_s)  # all leases are over
        return [tuple(row) for row in await connection.fetch("select account, micros, reserved from dragoman.spent")]

    def rows() -> list[LedgerRow]:
        return list(all_rows(ledger, 0.0, 1e11, {}))

    def over() -> bool:
        return finished <= {row.tags for row in rows()} and not any(row[2] for row in database.run(work, NEVER_S))

    with suppress(AssertionError):  # the verdict says what is missing
        wait_until(over, "all rows")
    return rows(), database.run(work, NEVER_S)


def explain(street: Street, load: Load) -> tuple[int, list[str]]:
    """Failures whose gateway was killed while they ran, and those of which nothing explains why."""
    killed = {f"127.0.0.1:{one.port}": one.killed for one in street.replicas}
    broken, unexplained = 0, []
    for one in load.asked:
        refused = one.status in (402, 403, 429) and one.kind in MAY_BE_REFUSED
        if one.kind == "scarce" and one.status == 503 and QUEUE_FULL in one.error:
            refused = True  # three requests wait for its limit already
        if (one.whole and one.status == 200) or refused or (one.kind == "left" and not one.error):
            continue
        times = [at for address in one.replicas.split(", ") for at in killed.get(address, [])]
        if any(one.began - NEAR_S <= at <= one.ended + NEAR_S for at in times):
            broken += 1
        else:
            unexplained.append(f"failed: {one}")
    return broken, unexplained


def _arrivals(street: Street, wanted: str) -> list[float]:
    lines = [line.split() for line in street.seen.read_text().splitlines()]
    return sorted(float(at) for at, model in lines if model == wanted)


def _busiest(times: list[float]) -> int:
    """Of all windows of 60 s, the most requests in one."""
    return max((bisect_left(times, at + SPAN_S) - place for place, at in enumerate(times)), default=0)


def _by_ledger(account: str, rows: list[LedgerRow], street: Street) -> int:
    kind, _, name = account.partition(":")
    names = {street.key_ids[key]: key for key in ("ada", "rob", "tia")}
    mine = [row for row in rows if (row.team == name if kind == "team" else row.key == names.get(name))]
    return sum(row.cost or 0 for row in mine)


def show(verdict: Verdict) -> str:
    return json.dumps({name: getattr(verdict, name) for name in verdict.__struct_fields__}, indent=1, default=str)
