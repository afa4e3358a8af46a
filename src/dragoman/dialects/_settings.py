"""Settings and costs that several dialects share, or that several dialects lack."""

from collections.abc import Collection, Mapping

from dragoman.model.reply import Usage
from dragoman.model.request import OutputFormat, Request, ToolChoice
from dragoman.notes import ROOT, At, Notes

# Values that mean the same as no value. Dropping them loses nothing.
SAYS_NOTHING: dict[str, tuple[object, ...]] = {
    "choices": (1,),
    "modalities": (("text",),),
    "stop": ((),),
    "metadata": ({},),
    "store": (False,),  # a server that cannot store obeys this anyway
    "parallel_calls": (True,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "min_p": (0,),
    "verbosity": ("medium",),
    "service_tier": ("auto", "default", "standard"),
    "output": (OutputFormat(type="text"),),
    "tool_choice": (ToolChoice(mode="auto"),),
    "strict": (False,),  # of a tool
    "detail": ("auto",),  # of a picture
    "failed": (False,),  # of a result
    **dict.fromkeys(("cache_read", "cache_write", "reasoning", "input_audio", "output_audio"), (0,)),  # counted: none
}


def says_something(field: str, value: object) -> bool:
    """Whether a setting differs from the default."""
    return value is not None and value not in SAYS_NOTHING.get(field, ())


def note_missing(request: Request, fields: Collection[str], dialect: str, notes: Notes) -> None:
    """Note each setting of the request that the dialect lacks."""
    for field in fields:
        value = getattr(request, field)
        if value is not None and says_something(field, value):
            notes.dropped((ROOT, field), f"{dialect} has no {field}")


_DOCUMENT_NAMES = {"application/pdf": "document.pdf", "text/plain": "document.txt", "text/markdown": "document.md"}


def name_document(media_type: str | None) -> str:
    """A name for a file without one: OpenAI reads the type of a file from its name."""
    return _DOCUMENT_NAMES.get(media_type or "application/pdf", "document")


def note_unnamed(output: OutputFormat, dialect: str, at: At, notes: Notes) -> None:
    """Note the losses of dialects whose output format has only a schema."""
    for key, value in (("name", output.name), ("description", output.description), ("strict", output.strict)):
        if value is not None and value is not False:
            notes.dropped((at, key), f"{dialect}'s output format has no {key}")


def encode_tier(tier: str, words: Mapping[str, str | None], dialect: str, notes: Notes) -> str | None:
    """The dialect's word for a service tier."""
    word = words.get(tier)
    if word is None and says_something("service_tier", tier):
        notes.dropped((ROOT, "service_tier"), f"{dialect} has no tier {tier}")
    elif word is not None and word != tier and any(says_something("service_tier", value) for value in (tier, word)):
        notes.altered((ROOT, "service_tier"), f"{tier} is {dialect}'s {word}")
    return word


def encode_ttl(ttl: str | None, words: Mapping[str, str], dialect: str, at: At, notes: Notes) -> str | None:
    """The dialect's word for the lifetime of a cache. `words` has its own words, and the nearest one for others."""
    if ttl is None:
        return None
    word = words.get(ttl)
    own = " or ".join(dict.fromkeys(words.values()))
    if word is None:
        notes.dropped((at, "ttl"), f"{dialect} keeps a cache for {own}, not {ttl}")
    elif word != ttl:
        notes.altered((at, "ttl"), f"{dialect} keeps a cache for {own}: {ttl} becomes {word}")
    return word


# ---------------------------------------------------------------- costs


def note_audio(usage: Usage, dialect: str, at: At, notes: Notes) -> None:
    """Note audio counts, for dialects that do not count audio. A count of 0 needs no note."""
    for key in ("input_audio", "output_audio"):
        if getattr(usage, key):
            notes.dropped((at, key), f"{dialect} does not count audio")


def note_missing_tier(tier: str | None, dialect: str, notes: Notes) -> None:
    """Note the tier, for dialects whose replies have no tier. The default tier needs no note."""
    if says_something("service_tier", tier):
        notes.dropped((ROOT, "service_tier"), f"{dialect} has no service tier {tier}")
