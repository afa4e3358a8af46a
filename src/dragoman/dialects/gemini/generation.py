"""Gemini generateContent: `generationConfig`, both ways.

Its unknown keys stay under `generationConfig` in the request's extras.
"""

from typing import Any

from dragoman.dialects._settings import note_unnamed
from dragoman.dialects.gemini.schema import read_schema, write_schema
from dragoman.dialects.gemini.spelling import to_camel
from dragoman.dialects.gemini.words import EFFORTS, NAME
from dragoman.errors import DecodeError
from dragoman.fields import (
    NUMBER,
    ValueTypes,
    add_extras,
    check_type,
    leftovers,
    need_object,
    note_spelling,
    spelled,
)
from dragoman.jsontypes import JsonObject
from dragoman.model.effort import lowest_known
from dragoman.model.request import OutputFormat, ReasoningSetting, Request
from dragoman.notes import ROOT, At, Notes

CONFIG = "generationConfig"
JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
ENUM_TYPE = "text/x.enum"  # one of the words of the schema, without quotation marks
DYNAMIC = -1  # a budget: the model decides

# Our field and Gemini's key, where both have the same value.
NUMBERS: tuple[tuple[str, str], ...] = (
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("frequency_penalty", "frequencyPenalty"),
    ("presence_penalty", "presencePenalty"),
)
INTEGERS: tuple[tuple[str, str], ...] = (
    ("top_k", "topK"),
    ("choices", "candidateCount"),
    ("max_output", "maxOutputTokens"),
    ("seed", "seed"),
    ("top_logprobs", "logprobs"),
)

# Of keys that stay in the config because of their values.
VALUE_TYPES: ValueTypes = {
    **{key: NUMBER for _, key in NUMBERS + INTEGERS},
    "responseLogprobs": (bool,),
    "stopSequences": (list,),
    "responseModalities": (list,),
    "responseMimeType": (str,),
    "responseSchema": (dict,),
    "responseJsonSchema": (dict,),
    "thinkingConfig": (dict,),
    "speechConfig": (dict,),
}

# ---------------------------------------------------------------- decode


def take_generation(body: JsonObject) -> dict[str, Any]:
    """Take the fields of a Request that `generationConfig` has."""
    config = body.get(CONFIG)
    if config is None:
        return {}
    need_object(config, CONFIG)
    if not config:
        del body[CONFIG]
        note_spelling(body, CONFIG, "empty")
        return {}
    to_camel(config, body, f"{CONFIG}.")
    fields: dict[str, Any] = {}
    for field, key in NUMBERS:
        value = config.get(key)
        if type(value) is float or type(value) is int:
            fields[field] = config.pop(key)
    for field, key in INTEGERS:
        value = config.get(key)
        if type(value) is int or (type(value) is float and value.is_integer()):
            fields[field] = int(config.pop(key))
    if type(config.get("responseLogprobs")) is bool:
        fields["logprobs"] = config.pop("responseLogprobs")
    stop = config.get("stopSequences")
    if _is_texts(stop):
        fields["stop"] = tuple(config.pop("stopSequences"))
    fields["modalities"] = _take_modalities(config, body)
    fields["reasoning"] = _take_reasoning(config, body)
    fields["output"] = _take_output(config)
    if not config:
        del body[CONFIG]
    for key in config:
        if key in VALUE_TYPES and not _is_number_text(config[key], key):
            _check(config, key)
    return fields


def _check(config: JsonObject, key: str) -> None:
    try:
        check_type(config, key, VALUE_TYPES)
    except DecodeError as error:
        raise error.under(CONFIG) from None


def _is_number_text(value: object, key: str) -> bool:
    """proto3 JSON takes a number as a string, too."""
    if type(value) is not str or VALUE_TYPES[key] is not NUMBER:
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_texts(value: object) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _take_modalities(config: JsonObject, body: JsonObject) -> tuple[str, ...] | None:
    given: Any = config.get("responseModalities")
    if not _is_texts(given):
        return None
    del config["responseModalities"]
    words = tuple(word.lower() for word in given)
    if [word.upper() for word in words] != given:
        note_spelling(body, "responseModalities", given)
    return words


def _take_reasoning(config: JsonObject, body: JsonObject) -> ReasoningSetting | None:
    """Take the level or the budget. Gemini refuses both together; we pass them on unchanged."""
    thinking = config.get("thinkingConfig")
    if type(thinking) is not dict or not thinking:
        return None
    del config["thinkingConfig"]
    to_camel(thinking, body, f"{CONFIG}.thinkingConfig.")
    mode: Any = None
    effort: str | None = None
    level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
    if type(level) is str:
        del thinking["thinkingLevel"]
        mode, effort = "auto", level.lower()
        if level != level.upper() or type(budget) is int:
            note_spelling(thinking, "thinkingLevel", level)
    if type(budget) is int and budget >= DYNAMIC:
        del thinking["thinkingBudget"]
        mode = {0: "off", DYNAMIC: "auto"}.get(budget, "on")
    else:
        budget = None
    if effort is not None and budget is not None:
        note_spelling(thinking, "thinkingBudget", budget)
    show = thinking.pop("includeThoughts") if type(thinking.get("includeThoughts")) is bool else None
    return ReasoningSetting(
        mode=mode,
        effort=effort,
        budget=budget if budget is not None and budget > 0 else None,
        show=show,
        extras=leftovers(thinking, NAME),
    )


def _take_output(config: JsonObject) -> OutputFormat | None:
    """Take JSON with or without a schema, plain text, or one of several words. Other types stay in the extras."""
    given = config.get("responseMimeType")
    schema_key = next(
        (k for k in ("responseJsonSchema", "_responseJsonSchema", "responseSchema") if type(config.get(k)) is dict),
        None,
    )
    if given == TEXT_TYPE and schema_key is None:
        del config["responseMimeType"]
        return OutputFormat(type="text")
    own: JsonObject = {}
    if given == ENUM_TYPE and schema_key is not None and "enum" in config[schema_key]:
        note_spelling(own, "bare", True)
    elif given != JSON_TYPE and (given is not None or schema_key is None):
        return None
    if config.pop("responseMimeType", None) is None:
        note_spelling(own, "responseMimeType", "absent")
    if schema_key is None:
        return OutputFormat(type="json", extras=leftovers(own, NAME))
    schema = config.pop(schema_key)
    if schema_key == "responseSchema":
        schema, spelling = read_schema(schema)
        note_spelling(own, "schema", spelling)
    elif schema_key == "_responseJsonSchema":
        note_spelling(own, "schema_key", schema_key)
    return OutputFormat(type="json_schema", schema=schema, extras=leftovers(own, NAME))


# ---------------------------------------------------------------- encode


def encode_generation(body: JsonObject, request: Request, notes: Notes) -> None:
    config: JsonObject = {}
    for field, key in NUMBERS + INTEGERS:
        value = getattr(request, field)
        if value is not None:
            config[key] = value
    if request.logprobs is not None:
        config["responseLogprobs"] = request.logprobs
    if request.stop is not None:
        config["stopSequences"] = list(request.stop)
    if request.modalities is not None:
        config["responseModalities"] = _encode_modalities(request)
    _encode_reasoning(config, request.reasoning, notes)
    _encode_output(config, request.output, notes)
    if config or spelled(request.extras, NAME, f"~{CONFIG}") == "empty":
        body[CONFIG] = config


def _encode_modalities(request: Request) -> list[str]:
    words = list(request.modalities or ())
    spelling = spelled(request.extras, NAME, "~responseModalities")
    if spelling is not None and [word.lower() for word in spelling] == words:
        return list(spelling)
    return [word.upper() for word in words]


def _encode_reasoning(config: JsonObject, setting: ReasoningSetting | None, notes: Notes) -> None:
    if setting is None:
        return
    at: At = (ROOT, "reasoning")
    own = setting.extras.get(NAME, {})
    thinking: JsonObject = {}
    if "~thinkingBudget" in own:
        thinking["thinkingBudget"] = own["~thinkingBudget"]
        thinking["thinkingLevel"] = own["~thinkingLevel"]
    elif setting.mode == "off":
        thinking["thinkingBudget"] = 0
        for key in ("effort", "budget"):
            if getattr(setting, key) is not None:
                notes.dropped((at, key), "gemini does not think at all with a budget of 0")
    elif setting.budget is not None:
        _encode_budget(thinking, setting.budget, setting, at, notes)
    elif setting.effort is not None:
        _encode_level(thinking, setting.effort, setting, at, notes)
    elif setting.mode is not None:
        thinking["thinkingBudget"] = DYNAMIC
        if setting.mode == "on":
            notes.altered((at, "mode"), "gemini thinks by level or budget: the model decides")
    if setting.show is not None:
        thinking["includeThoughts"] = setting.show
    if setting.extras:
        add_extras(thinking, setting.extras, NAME, at, notes)
    if thinking:
        config["thinkingConfig"] = thinking


def _encode_budget(thinking: JsonObject, budget: int, setting: ReasoningSetting, at: At, notes: Notes) -> None:
    thinking["thinkingBudget"] = budget
    if budget <= 0:
        notes.altered((at, "budget"), "gemini reads 0 as off and -1 as its own choice")
        notes.altered((at, "mode"), "gemini reads 0 as off and -1 as its own choice")
    elif setting.mode is None:
        notes.invented((at, "mode"), "a budget switches gemini's thinking on")
    elif setting.mode != "on":
        notes.altered((at, "mode"), "a budget switches gemini's thinking on")
    if setting.effort is not None:  # "level and budget together": 400
        notes.dropped((at, "effort"), "gemini takes a level or a budget, not both")


def _encode_level(thinking: JsonObject, effort: str, setting: ReasoningSetting, at: At, notes: Notes) -> None:
    level = lowest_known(effort, EFFORTS)
    if level != effort:
        notes.altered((at, "effort"), f"gemini has no level {effort}: {level}")
    spelling = setting.extras.get(NAME, {}).get("~thinkingLevel")
    same = type(spelling) is str and spelling.lower() == level
    thinking["thinkingLevel"] = spelling if same else level.upper()
    if setting.mode is None:
        notes.invented((at, "mode"), "gemini decides how much it thinks, guided by the level")
    elif setting.mode == "on":
        notes.altered((at, "mode"), "gemini decides how much it thinks, guided by the level")


def _encode_output(config: JsonObject, output: OutputFormat | None, notes: Notes) -> None:
    if output is None:
        return
    at: At = (ROOT, "output")
    note_unnamed(output, NAME, at, notes)
    own = output.extras.get(NAME, {})
    if "~responseMimeType" not in own:
        kind = ENUM_TYPE if "~bare" in own else JSON_TYPE
        config["responseMimeType"] = TEXT_TYPE if output.type == "text" else kind
    if output.schema is not None:
        schema = write_schema(output.schema, own.get("~schema"))
        if schema is not None:
            config["responseSchema"] = schema
        else:
            config[own.get("~schema_key", "responseJsonSchema")] = output.schema
    elif output.type == "json_schema":
        notes.altered((at, "type"), "no schema: any JSON")
    if output.extras:
        add_extras(config, output.extras, NAME, at, notes)
