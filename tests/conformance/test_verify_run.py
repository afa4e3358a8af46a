"""The runner: what turns a cell green, red or grey, and that it ends in time whatever a server does."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import dragoman.dialects.anthropic.request as anthropic_request
import dragoman.passes.prepare as preparing
from dragoman.conformance.record import RecordedSender, Recorder, recorded_targets, scrub
from dragoman.conformance.runner import VerifyCell, VerifyOptions, VerifyRun, compare, verify
from dragoman.conformance.runner_targets import VerifyTarget, configured_targets, door_targets, url_targets
from dragoman.conformance.runner_wire import LiveSender
from dragoman.conformance.scenario import Scenario, load_scenarios
from dragoman.conformance.verification import KEY, scripted_targets, verify_scripted
from dragoman.dialects import _tools
from dragoman.errors import ConfigError
from dragoman.model.messages import Image, Part, ToolResult
from dragoman.model.request import Request, Tool
from dragoman.passes.prepare import prepare
from dragoman.testing import Provider, faults
from dragoman.upstream.keys import Secret, origin_of
from tests.gateway.house import faultline, say

BY_NAME = {scenario.name: scenario for scenario in load_scenarios()}
PATIENT = VerifyOptions(timeout_s=30.0)


def swap_tool_encoder(monkeypatch: pytest.MonkeyPatch, encode: Any) -> None:
    """Scenarios send the same tools again and again, so the tools that were written before must be forgotten too."""
    monkeypatch.setattr(anthropic_request, "encode_tool", encode)
    monkeypatch.setattr(_tools, "_written", {})


def pick(*names: str) -> tuple[Scenario, ...]:
    return tuple(BY_NAME[name] for name in names)


def target_of(provider: Provider, model: str = "claude-sonnet-4-6") -> VerifyTarget:
    return VerifyTarget(
        name=provider.kind,
        dialect=provider.dialect,
        base_url=provider.base_url,
        model=model,
        kind=provider.kind,
        auth=provider.auth,
        key=Secret(KEY, origin_of(provider.base_url)),
    )


def only(run: VerifyRun) -> VerifyCell:
    (cell,) = run.cells.values()
    return cell


def play(kind: str, *names: str, **settings: Any) -> tuple[VerifyRun, Provider]:
    async def work() -> tuple[VerifyRun, Provider]:
        async with Provider(kind, key=KEY, **settings.get("provider", {})) as provider:
            for fault in settings.get("faults", ()):
                provider.next(fault)
            if "always" in settings:
                provider.always(settings["always"])
            for said in settings.get("says", ()):
                provider.say(said)
            options = settings.get("options", PATIENT)
            return await verify([target_of(provider, *settings.get("model", ()))], pick(*names), options), provider

    return asyncio.run(work())


# ---------------------------------------------------------------- red


def test_a_broken_converter_turns_cells_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake of seed 001: a tool whose schema is lost on the way to Anthropic."""
    whole: Any = anthropic_request.encode_tool

    def broken(tool: Tool, *more: Any) -> Any:
        return {**whole(tool, *more), "input_schema": {}}

    swap_tool_encoder(monkeypatch, broken)
    run, _ = play("anthropic", "basic", "tool_bare", "tool_trip")
    assert [run.cells["anthropic", name].outcome for name in ("basic", "tool_bare", "tool_trip")] == [
        "PASS",
        "FAIL",
        "FAIL",
    ]
    cell = run.cells["anthropic", "tool_bare"]
    assert "input_schema" in cell.words
    assert "Input should be 'object'" in cell.words  # the provider's own words
    assert b"get_current_time" in cell.tries[0].exchanges[-1].request  # and the request that caused them


def test_a_converter_that_raises_is_a_red_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*more: Any) -> Any:
        raise RuntimeError("lost my way")

    swap_tool_encoder(monkeypatch, broken)
    run, _ = play("anthropic", "tool_bare")
    assert only(run).words == "whole: RuntimeError: lost my way"


@pytest.mark.parametrize(
    ("field", "scenario", "words"),
    [
        ("reasoning", "think_high", "it did not think: no thoughts"),
        ("stop", "stop", "the text contains '5'"),
        ("tool_choice", "choice_none", "which was forbidden"),
        ("tool_choice", "choice_required", "called nothing"),
        ("tool_choice", "choice_named", "called get_weather, expected get_current_time"),
        ("tools", "tool_trip", "called nothing"),
        ("output", "structured", "not JSON"),
        ("max_output", "max_output", "finished with stop"),
        ("system", "system", "does not say 'ahoy'"),
        ("history", "memory", "does not say 'teal'"),
        ("stop", "stop_line", "the text contains"),
        ("image", "image", "says none of"),
        ("image", "image_label", "says none of"),
        ("result image", "tool_image", "says none of"),
    ],
)
@pytest.mark.parametrize("kind", ["anthropic", "gemini", "ollama", "openai"])
def test_whatever_a_conversion_loses_is_seen(
    kind: str, field: str, scenario: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy = partial(lose, field)
    monkeypatch.setattr("dragoman.exchange.prepare", lambda r, *more: prepare(lossy(r), *more))
    run, _ = play(kind, scenario)
    assert only(run).outcome == "FAIL"
    assert words in only(run).words


@pytest.mark.parametrize(
    ("kind", "model", "left_out", "scenario"),
    [
        ("anthropic", "claude-sonnet-4-6", "pair_calls", "two_results"),
        ("anthropic", "claude-sonnet-4-6", "fit_media", "image_label"),
        ("openai", "gpt-4o", "fit_cache_marks", "rule_marks"),
        ("openai", "gpt-4o", "drop_lone_choice", "rule_no_tools"),
        ("mistral", "mistral-medium-latest", "answer_results", "rule_turns"),
        ("anthropic", "claude-sonnet-4-6", "fit_thinking", "rule_quiet"),
    ],
)
def test_a_rule_that_is_not_obeyed_is_seen(
    kind: str, model: str, left_out: str, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tuple(step for step in preparing.STEPS if step.run.__name__ != left_out)
    assert len(steps) < len(preparing.STEPS)
    run, _ = play(kind, scenario, model=(model,))
    assert only(run).outcome == "PASS"
    monkeypatch.setattr(preparing, "STEPS", steps)
    monkeypatch.setattr(preparing, "_plans", {})
    run, _ = play(kind, scenario, model=(model,))
    assert only(run).outcome == "FAIL"


def test_a_server_that_gives_two_answers_one_id_is_seen() -> None:
    body = {
        "id": "msg_same",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "teal"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    with faultline(say(200, json.dumps(body).encode())) as far:
        target = VerifyTarget(name="far", dialect="anthropic", base_url=far.url, model="m", kind="anthropic")
        first = BY_NAME["memory"].turn[0]
        memory = replace(BY_NAME["memory"], modes=("whole",), turn=(first, first))
        run = asyncio.run(verify([target], (memory,), PATIENT))
    assert "two answers have the same id 'msg_same'" in only(run).words


def lose(field: str, request: Request) -> Request:
    match field:
        case "system":
            return replace(request, messages=tuple(m for m in request.messages if m.role != "system"))
        case "history":
            return replace(request, messages=request.messages[-1:])
        case "image":
            return replace(request, messages=tuple(replace(m, parts=_blind(m.parts)) for m in request.messages))
        case "result image":
            turns = (
                replace(
                    m,
                    parts=tuple(replace(p, parts=_blind(p.parts)) if isinstance(p, ToolResult) else p for p in m.parts),
                )
                for m in request.messages
            )
            return replace(request, messages=tuple(turns))
        case _:
            return replace(request, **{field: None})


def _blind(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not isinstance(part, Image))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.failing(500), "500 server_error"),
        (faults.cut(after=2, how="end"), "cut_off"),
        (faults.error_in_stream(after=2), "streamed:"),
        (faults.garbage(), "cannot be read"),
        (faults.html(), "cannot be read"),
        (faults.empty_stream(), "streamed:"),
        (faults.reset_after_headers(), "was cut off"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_broken_answer_is_a_red_cell_with_its_reason(fault: faults.ScriptedFault, words: str) -> None:
    run, _ = play("anthropic", "basic", always=fault)
    assert only(run).outcome == "FAIL"
    assert words in only(run).words


def test_a_stalled_server_costs_the_timeout_and_no_more() -> None:
    run, _ = play("anthropic", "basic", always=faults.stalled(), options=VerifyOptions(timeout_s=0.3))
    assert "no whole answer in 0.3 s" in only(run).words


def test_repeated_tries_tell_how_many_failed() -> None:
    run, provider = play(
        "anthropic", "basic", faults=[faults.failing(500)], options=VerifyOptions(timeout_s=30, repeat=2)
    )
    assert len(provider.requests) == 5  # one of them the probe
    assert only(run).words.startswith("1 of 4, whole: 500")


# ---------------------------------------------------------------- green and grey


def test_a_busy_server_is_asked_again() -> None:
    run, _ = play("anthropic", "basic", faults=[faults.rate_limited(wait_s=0, form="seconds")])
    assert only(run).outcome == "PASS"


def test_hanging_up_is_seen_by_the_server() -> None:
    run, provider = play("anthropic", "cancel", provider={"pace_s": 0.01})
    assert only(run).outcome == "PASS"
    assert [seen.left for seen in provider.requests if seen.dialect] == [True, False]


def test_a_used_up_account_is_no_failure() -> None:
    run, _ = play("openai", "basic", always=faults.rate_limited(form="openai_quota"))
    assert only(run).outcome == "SKIP"
    assert "exceeded your current quota" in only(run).words


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "vllm"])
def test_a_blind_model_that_guesses_the_colour_is_grey(kind: str) -> None:
    run, _ = play(kind, "image", says=["It is red."] * 8)
    assert only(run).outcome == "SKIP"
    assert "the answer to another picture is the same" in only(run).words


@pytest.mark.parametrize(("kind", "outcome"), [("vllm", "SKIP"), ("compatible", "SKIP"), ("anthropic", "FAIL")])
def test_a_model_that_may_not_think_is_grey_when_it_does_not(kind: str, outcome: str) -> None:
    run, _ = play(kind, "think_high", says=["pong"] * 8, model=() if kind == "anthropic" else ("tiny",))
    assert only(run).outcome == outcome


def test_a_part_that_a_target_cannot_take_is_grey_with_its_note() -> None:
    async def work() -> VerifyRun:
        return await verify_scripted(["deepseek"], scenarios=pick("image"), options=PATIENT)

    run = asyncio.run(work())
    cell = run.cells["deepseek (openai_chat)", "image"]
    assert cell.outcome == "SKIP"
    assert "takes no image" in cell.words


def test_without_keys_the_eight_providers_are_grey(tmp_path: Path) -> None:
    targets = configured_targets(None, {"DRAGOMAN_NO_PROBE": "1"}, tmp_path)
    assert [t.name for t in targets] == [
        "openai", "azure", "anthropic", "gemini", "xai", "ollama", "lmstudio", "gpustack",
    ]  # fmt: skip
    run = asyncio.run(verify(targets, pick("basic"), PATIENT))
    assert run.count("SKIP") == 8
    assert run.cells["openai", "basic"].words == "no key: set OPENAI_API_KEY"


def test_a_key_in_the_environment_makes_a_target(tmp_path: Path) -> None:
    env = {"DRAGOMAN_NO_PROBE": "1", "GEMINI_API_KEY": "k" * 20}
    (target,) = [t for t in configured_targets(None, env, tmp_path) if t.name == "gemini"]
    assert (target.dialect, target.skip) == ("gemini", "")


def test_configured_providers_are_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text('[providers.mine]\nkind = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m1"]\n')
    (target,) = configured_targets(path, {}, tmp_path)
    assert (target.name, target.kind, target.model, target.skip) == ("mine", "vllm", "m1", "")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('kind = "compatible"\nbase_url = "http://127.0.0.1:9/v1"', ""),
        ('kind = "compatible"\nbase_url = "https://llm.example/v1"', ""),
        ('kind = "vllm"\nbase_url = "http://10.0.0.9:8000/v1"', ""),
        ('kind = "groq"', "no key: set GROQ_API_KEY or api_key"),
    ],
)
def test_only_a_provider_that_needs_a_key_is_left_out_for_one(row: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "dragoman.toml"
    path.write_text(f'[providers.mine]\n{row}\nmodels = ["m1"]\n')
    (target,) = configured_targets(path, {}, tmp_path)
    assert target.skip == reason


def test_a_provider_is_asked_over_its_models_dialect_or_over_those_asked_for(tmp_path: Path) -> None:
    env = {"DRAGOMAN_NO_PROBE": "1", "OPENAI_API_KEY": "k" * 20}
    (usual,) = [t for t in configured_targets(None, env, tmp_path) if t.kind == "openai"]
    assert (usual.name, usual.dialect) == ("openai", "openai_responses")  # mission B6
    both = configured_targets(None, env, tmp_path, ["openai-chat", "openai-responses"])
    assert [t.name for t in both if t.kind == "openai"] == ["openai (openai_chat)", "openai (openai_responses)"]


@pytest.mark.parametrize(("named", "outcome"), [(True, "FAIL"), (False, "SKIP")])
def test_an_unreachable_server_is_red_if_it_was_named_and_else_grey(named: bool, outcome: str) -> None:
    (target,) = url_targets("http://127.0.0.1:9", ["ollama"], model="m")
    run = asyncio.run(verify([replace(target, named=named)], pick("basic"), PATIENT))
    assert only(run).outcome == outcome
    assert "not reachable" in only(run).words


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such dialect"):
        url_targets("http://127.0.0.1:9", ["klingon"])


def test_a_gateway_has_six_doors() -> None:
    doors = door_targets("http://127.0.0.1:20006", model="m")
    assert [door.dialect for door in doors] == [
        "openai_chat", "openai_responses", "anthropic", "gemini", "ollama", "jsonrpc",
    ]  # fmt: skip
    assert all(door.gateway for door in doors)


def test_the_first_model_listed_is_asked_for() -> None:
    async def work() -> VerifyRun:
        async with Provider("ollama", models=("small", "big")) as provider:
            return await verify(url_targets(provider.url, ["ollama"]), pick("basic"), PATIENT)

    run = asyncio.run(work())
    assert run.targets[0].model == "small"
    assert only(run).outcome == "PASS"


def test_worse_is_red_where_it_was_not() -> None:
    def one(name: str, outcome: Any) -> VerifyRun:
        cell = VerifyCell(target=name, scenario="basic", outcome=outcome)
        return VerifyRun(
            targets=(VerifyTarget(name=name, dialect="anthropic"),),
            scenarios=pick("basic"),
            cells={(name, "basic"): cell},
        )

    assert [
        len(compare(one("d", a), one("t", b))) for a, b in (("PASS", "FAIL"), ("FAIL", "FAIL"), ("PASS", "PASS"))
    ] == [1, 0, 0]


# ---------------------------------------------------------------- recordings


def test_a_recording_replays_the_same(tmp_path: Path) -> None:
    names = ("basic", "tool_trip", "think_tools", "cancel", "wrong_key", "wrong_model", "count", "models")

    async def work() -> tuple[VerifyRun, VerifyRun]:
        async with scripted_targets(["anthropic", "gemini", "ollama"]) as targets:
            recorder = Recorder(LiveSender(), tmp_path)
            live = await verify(targets, pick(*names), PATIENT, line=recorder)
            await recorder.close()
        return live, await verify(recorded_targets(tmp_path), pick(*names), PATIENT, line=RecordedSender(tmp_path))

    live, again = asyncio.run(work())
    assert live.count("FAIL") == 0
    assert {place: cell.outcome for place, cell in again.cells.items()} == {
        place: cell.outcome for place, cell in live.cells.items()
    }
    remarks = [ex.remark for cell in again.cells.values() for one in cell.tries for ex in one.exchanges if ex.remark]
    assert remarks == []
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 50
    assert not any(KEY.encode() in data or b"127.0.0.1" in data for data in kept)


def test_what_was_not_recorded_is_grey_and_what_changed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep() -> None:
        async with scripted_targets(["anthropic"]) as targets:
            recorder = Recorder(LiveSender(), tmp_path)
            await verify(targets, pick("tool_bare"), PATIENT, line=recorder)
            await recorder.close()

    asyncio.run(keep())
    whole: Any = anthropic_request.encode_tool
    swap_tool_encoder(monkeypatch, lambda *more: {**whole(*more), "description": "another"})
    targets = recorded_targets(tmp_path)
    run = asyncio.run(verify(targets, pick("tool_bare", "basic"), PATIENT, line=RecordedSender(tmp_path)))
    assert run.cells["anthropic", "basic"].words == "this was not recorded"
    assert "no longer the one" in run.cells["anthropic", "tool_bare"].tries[0].exchanges[0].remark


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recording"):
        recorded_targets(tmp_path)


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ("write to jane.doe@corp.example.org now", "jane.doe"),
        ('{"organization_id": "3f2a-88", "x": 1}', "3f2a-88"),
        ("in organization org-AbCdEfGh123456", "AbCdEfGh123456"),
        ("key sk-proj-abcdefghijklmnop was", "abcdefghijklmnop"),
        ("AIzaSyA1234567890abcdefghijklmnop", "1234567890abc"),
        ("token eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSM", "SflKxwRJSM"),
        ("from 203.0.113.77 today", "203.0.113.77"),
        ("projects/my-secret-project/locations", "my-secret-project"),
        ("key own-secret-value here", "own-secret-value"),
    ],
)
def test_nothing_that_names_a_person_is_kept(said: str, gone: str) -> None:
    kept = scrub(said.encode(), Secret("own-secret-value")).decode()
    assert gone not in kept
    assert len(kept.split()) == len(said.split())
