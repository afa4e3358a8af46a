"""Claude Code, Codex and Gemini CLI, as people install them, read a file and answer from it through the gateway: in
front of the demo model, and of a strict scripted provider of each dialect. `make test-clients` runs it.

Everything stays on this machine: a clean environment, a home of its own, a key that is none, and a proxy that lets
nobody out.
"""

import os
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dragoman.gateway.telemetry.xray import Xray
from dragoman.testing import Provider, serve
from dragoman.upstream.spec import Timeouts
from tests.clients.blocking_proxy import blocking_proxy
from tests.clients.install import UnavailableError, install
from tests.clients.page import HOME, Play, write_page
from tests.clients.programs import CLAUDE, CODEX_BEFORE, GEMINI, PROGRAMS, Place, Program, Run, run
from tests.gateway.house import CANARY, House, open_house, upstream
from tests.gateway.sdks import PIXEL
from tests.waiting import wait_until

WISH = "DRAGOMAN_TEST_CLIENTS"  # `make test-clients` sets it: an ordinary test run installs nothing from npm
TRANSCRIPTS = "DRAGOMAN_CLIENT_TRANSCRIPTS"  # a folder to write what was said into, for people
PAGE = "DRAGOMAN_CLIENTS_PAGE"  # a file for the transcripts people read: `make test-clients PAGE=docs/clients.md`
SECRET = "marzipan-7341"
KEPT = 50  # requests of a run
AT_ONCE = 3

# What stands behind the gateway -> the model it is asked for there.
UPSTREAMS = {
    "demo": "demo",
    "openai_chat": "gpt-5.1",
    "openai_responses": "gpt-5.4",  # Codex asks for the reasoning of all turns, which older models refuse
    "anthropic": "claude-sonnet-4-6",
    "gemini": "gemini-2.5-flash",
    "ollama": "qwen3",
}
KINDS = {"openai_chat": "openai", "openai_responses": "openai"}
AWAY = {"claude": ("openai_chat", "gemini"), "codex-5.5": ("anthropic", "gemini"), "gemini": ("openai_chat", "ollama")}
HOMES = {"claude": "anthropic", "codex": "openai_responses", "codex-5.5": "openai_responses", "gemini": "gemini"}


@dataclass(frozen=True)
class Deed:
    """Something harder than reading one file."""

    name: str
    program: Program
    prompt: str
    answers: tuple[str, ...] = ()  # in the answer
    picture: bool = False  # reaches the model
    file: str | None = None  # is there afterwards


TWO = ("alpha-1", "beta-2")
DEEDS = (
    Deed("two files", CLAUDE, "Read the files {folder}/a.txt and {folder}/b.txt in parallel.", TWO),
    Deed("two files", GEMINI, "Use read_file in parallel for {folder}/a.txt and {folder}/b.txt", TWO),
    Deed("a picture", CLAUDE, "Read the file {folder}/dot.png and tell me what it shows.", picture=True),
    Deed("a picture", GEMINI, "Read the file {folder}/dot.png and tell me what it shows.", picture=True),
    Deed("a picture", CODEX_BEFORE, "Use view_image for {folder}/dot.png", picture=True),
    Deed("a patch", CODEX_BEFORE, "Use apply_patch.", ("Success",), file="demo.txt"),
)
PNG = b"iVBORw0KGgo"


@dataclass(frozen=True)
class Told:
    """What came of one run."""

    run: Run
    conversations: list[bytes]  # the bodies that reached the provider
    refusals: list[str]
    warnings: list[str]
    wanted: list[str]  # where the program wanted to go, besides the gateway
    prompt: str
    folder: str
    rows: list[Xray]  # what went through the gateway, in order

    def __str__(self) -> str:
        found = f"exit {self.run.code} after {self.run.seconds:.1f} s, refusals {self.refusals}"
        return f"{found}, warnings {self.warnings}, wall {self.wanted}\n\n{self.run.out}\n\n{self.run.err}"


class ProgramRunner:
    """A home, a folder to work in and a proxy, for one program."""

    def __init__(self, stack: ExitStack, bins: Path) -> None:
        self.folder = Path(stack.enter_context(TemporaryDirectory(prefix="dragoman-", dir=scratch())))
        self.wall = stack.enter_context(blocking_proxy())
        self.bins = bins
        for name in ("home", "work"):
            (self.folder / name).mkdir()

    def play(self, program: Program, behind: str, secret: str, *, resume: bool = False) -> Told:
        """One run: the file holds the secret, the question is what it says."""
        note = self.folder / "work" / f"{secret}.txt"
        note.write_text(f"The password is {secret}.\n")
        prompt = f"Read the file {note} and tell me what it says."
        return self.ask(program, behind, prompt, resume=resume, name="resumed" if resume else "read")

    def ask(self, program: Program, behind: str, prompt: str, *, name: str, resume: bool = False) -> Told:
        with ExitStack() as stack:
            provider = stack.enter_context(serve(behind, key=CANARY)) if behind != "demo" else None
            house = stack.enter_context(gateway(program, behind, provider))
            place = Place(self.bins, self.folder / "home", self.folder / "work", house.url, self.wall.url)
            done = run(program, place, prompt, resume=resume)
            eventually_quiet(house)
            seen = provider.requests if provider else []
            told = Told(
                run=done,
                conversations=[request.body for request in seen if request.dialect],
                refusals=provider.refusals if provider else [],
                warnings=provider.warnings if provider else [],
                wanted=self.wall.wanted,
                prompt=prompt,
                folder=str(self.folder),
                rows=house.gateway.xray.rows()[::-1],
            )
        if folder := os.environ.get(TRANSCRIPTS):
            Path(folder, f"{program.name}-{name}-{behind}.txt".replace(" ", "_")).write_text(str(told))
        return told


def eventually_quiet(house: House) -> None:
    """A program may have its answer a moment before the gateway has written it down."""
    wait_until(lambda: house.gateway.metrics.running == 0)


def play(program: Program, behind: str, bins: Path) -> Told:
    with ExitStack() as stack:
        return ProgramRunner(stack, bins).play(program, behind, SECRET)


def do(deed: Deed, behind: str, bins: Path) -> tuple[Told, list[str]]:
    """What came of a deed, and the files there were afterwards."""
    with ExitStack() as stack:
        stage = ProgramRunner(stack, bins)
        work = stage.folder / "work"
        (work / "a.txt").write_text("alpha-1\n")
        (work / "b.txt").write_text("beta-2\n")
        (work / "dot.png").write_bytes(b64decode(PIXEL))
        told = stage.ask(deed.program, behind, deed.prompt.format(folder=work), name=deed.name)
        return told, sorted(path.name for path in work.iterdir())


def play_on(program: Program, bins: Path) -> list[Told]:
    """One conversation that goes on at every provider in turn, and comes home again."""
    with ExitStack() as stack:
        stage = ProgramRunner(stack, bins)
        home = HOMES[program.name]
        way = [home, *(name for name in UPSTREAMS if name not in ("demo", home)), home]
        return [
            stage.play(program, behind, f"{SECRET}-{number}", resume=number > 0) for number, behind in enumerate(way)
        ]


def scratch() -> str | None:
    """Codex puts no helpers under /tmp, and says so at length."""
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # noqa: S108


def gateway(program: Program, behind: str, provider: Provider | None) -> AbstractContextManager[House]:
    """The program asks for the model it always asks for, and the gateway knows what is meant."""
    if provider is None:
        return open_house(xray_keep=KEPT)
    model = UPSTREAMS[behind]
    spec = upstream(behind, behind, provider.base_url, kind=KINDS.get(behind, behind), timeouts=Timeouts())
    return open_house(spec, aliases={program.model: (f"{behind}/{model}",)}, xray_keep=KEPT)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool


@pytest.fixture(scope="module")
def bins() -> Path:
    if not os.environ.get(WISH):
        pytest.skip(f"{WISH} is not set: `make test-clients` runs the real programs")
    try:
        return install()
    except UnavailableError as error:
        pytest.skip(f"the programs cannot be installed: {error}")


@pytest.fixture(scope="module")
def long_runs(bins: Path, pool: ThreadPoolExecutor) -> dict[str, Future[list[Told]]]:
    return {program.name: pool.submit(play_on, program, bins) for program in PROGRAMS}


@pytest.fixture(scope="module")
def deeds(bins: Path, pool: ThreadPoolExecutor) -> dict[tuple[Deed, str], Future[tuple[Told, list[str]]]]:
    """Each in front of two dialects that are not the program's own."""
    others = {
        CLAUDE: ("openai_chat", "gemini"),
        CODEX_BEFORE: ("anthropic", "gemini"),
        GEMINI: ("openai_chat", "ollama"),
    }
    return {(deed, behind): pool.submit(do, deed, behind, bins) for deed in DEEDS for behind in others[deed.program]}


@pytest.fixture(scope="module")
def runs(
    bins: Path, pool: ThreadPoolExecutor, long_runs: dict[str, Future[list[Told]]]
) -> dict[tuple[str, str], Future[Told]]:
    """All of them, some at once; the long ones first."""
    return {(p.name, behind): pool.submit(play, p, behind, bins) for behind in UPSTREAMS for p in PROGRAMS}


@pytest.mark.parametrize("behind", UPSTREAMS)
@pytest.mark.parametrize("program", [program.name for program in PROGRAMS])
def test_a_program_reads_a_file_and_answers_from_it(
    program: str, behind: str, runs: dict[tuple[str, str], Future[Told]]
) -> None:
    told = runs[program, behind].result()
    assert told.run.code == 0, told
    assert SECRET in told.run.answer, told
    assert told.refusals == [], told
    if behind != "demo":
        assert len(told.conversations) >= 2, told


@pytest.mark.parametrize("program", [program.name for program in PROGRAMS])
def test_a_conversation_goes_on_at_other_providers_and_comes_home(
    program: str, long_runs: dict[str, Future[list[Told]]], runs: object
) -> None:
    """With all that was thought, called, sealed and answered elsewhere in its history."""
    for number, told in enumerate(long_runs[program].result()):
        assert told.run.code == 0, told
        assert f"{SECRET}-{number}" in told.run.answer, told
        assert told.refusals == [], told
        assert all(f"{SECRET}-{before}".encode() in told.conversations[0] for before in range(number)), told


def test_pictures_patches_and_several_calls_go_through(
    deeds: dict[tuple[Deed, str], Future[tuple[Told, list[str]]]], runs: object
) -> None:
    for (deed, behind), future in deeds.items():
        told, files = future.result()
        about = f"{deed.program.name}, {deed.name}, in front of {behind}: {told}"
        assert told.run.code == 0, about
        assert told.refusals == [], about
        assert all(word in told.run.answer for word in deed.answers), about
        assert not deed.picture or PNG in told.conversations[-1], about
        assert deed.file is None or deed.file in files, about


def test_codex_goes_over_to_http_at_once(runs: dict[tuple[str, str], Future[Told]]) -> None:
    """It tries a WebSocket first, and seven times over seven seconds if that is refused badly (FIELD-CASES 147)."""
    told = [future.result().run for (name, _), future in runs.items() if name == "codex"]
    assert [run.err.count("failed to connect to Responses WebSocket") for run in told] == [1] * len(told)
    assert min(run.seconds for run in told) < 5


def test_codex_tries_no_websocket_where_it_is_told_that_there_is_none(
    runs: dict[tuple[str, str], Future[Told]],
) -> None:
    told = [future.result().run for (name, _), future in runs.items() if name == "codex-5.5"]
    assert not [run.err for run in told if "WebSocket" in run.err]


def test_the_transcripts_can_be_read(runs: dict[tuple[str, str], Future[Told]]) -> None:
    """Nothing of this machine is in them, and each ends with what the file said."""
    plays = [
        Play(name, behind, told.prompt, told.folder, told.rows, told.run.answer)
        for (name, behind), future in sorted(runs.items())
        for told in (future.result(),)
    ]
    page = write_page(plays)
    assert page.count("\n## ") == 3 * 4
    assert page.count(f"{HOME}/{SECRET}.txt") >= 3 * 4
    assert not [play.folder for play in plays if play.folder in page]
    assert str(Path.home()) not in page
    if file := os.environ.get(PAGE):
        Path(file).write_text(page)
