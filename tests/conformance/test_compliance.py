"""The two lists of the mission: eleven fields of Anthropic's request (C1), nine of its reply (C2)."""

from dragoman.conformance.compliance import REPLY, REQUEST, check_reply, check_request


def test_all_eleven_request_fields_reach_openai_chat() -> None:
    named = "model max_tokens system messages temperature top_p stream stop_sequences tools tool_choice metadata"
    assert [demand.field for demand in REQUEST] == named.split()
    assert [met for met in check_request() if not met.met] == []


def test_all_nine_reply_fields_reach_anthropic() -> None:
    named = "id model type role content stop_reason usage stop_sequence function_call"
    assert [demand.field for demand in REPLY][:9] == named.split()
    assert [met for met in check_reply() if not met.met] == []
