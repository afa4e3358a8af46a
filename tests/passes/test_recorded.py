"""Recorded requests that their provider took: the passes for that provider leave them as they are.

The few exceptions are named by what happens to them. None of them may touch a call, a result or a word of text.
"""

from collections import Counter

from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.profiles import load_rows, profile_for
from tests.gaps import check_problems
from tests.recorded import cases, needs_corpus

pytestmark = needs_corpus

TALK = ("messages", "chat", "responses", "generate")
KINDS = {"llama-cpp": "llamacpp", "google": "gemini"}  # what the corpus calls them -> our rows
USUAL = {"anthropic": "anthropic", "gemini": "gemini", "ollama": "ollama"}
HARMLESS = (
    "an empty system turn left out",
    "blank text is refused",  # an empty system instruction
    "its bytes are",
    "the target does not distinguish developer and system",
    "openai_responses takes back only reasoning it signed itself",  # other makers' servers, taken as OpenAI's
    "openai refuses reasoning in the history",  # the same
    "an empty list has no effect, and may be refused",  # Hugging Face's, taken as OpenAI's
    "a tool without parameters",  # mission B5: never null
    "takes at least 16",
    "the name of its call",  # mission A7
)


def _kind(provider: str, dialect: str) -> str:
    name = KINDS.get(provider, provider)
    row = load_rows().kinds.get(name)
    return name if row is not None and dialect in row.dialects else USUAL.get(dialect, "openai")


def test_what_a_provider_took_is_left_as_it_is(gaps: dict[str, str]) -> None:
    total, same = Counter[str](), Counter[str]()
    problems: dict[str, list[str]] = {}
    for dialect in ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama"):
        for case in cases(dialect):
            wire = case.request() if case.meta["endpoint"] in TALK and not case.failed else None
            if wire is None:
                continue
            request = find_dialect(dialect).decode_request(wire, Notes())
            kind = _kind(case.name.split("--")[0], dialect)
            notes = Notes()
            profile = replace(profile_for(kind, request.model, dialect), native=True)
            legal = legalise(request, profile, notes)
            strange = [f"{kind}: {n}" for n in notes if not any(word in n.why for word in HARMLESS)]
            if legal is not request and not len(notes):
                strange = [f"{kind}: changed without a note"]
            if strange:
                problems[case.name] = strange
            else:
                total[dialect] += 1
                same[dialect] += legal is request
    check_problems(problems, gaps)
    for dialect, count in total.items():
        assert same[dialect] >= 0.96 * count, (dialect, same[dialect], count)
