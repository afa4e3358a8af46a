"""Every scenario at llama.cpp's server, directly and through a gateway in front of it."""

from msgspec.structs import replace

from dragoman.conformance.runner import VerifyOptions, VerifyRun, verify
from dragoman.conformance.runner_targets import VerifyTarget, url_targets
from dragoman.conformance.scenario import load_scenarios
from dragoman.conformance.verification import gateway_targets

KEY = "llama-key-0123456789"
FORM = VerifyOptions(timeout_s=20.0, parallel=4, meaning=False)  # the model says nothing sensible
ENDPOINTS = ("openai_chat", "openai_responses", "anthropic")


async def play(url: str) -> tuple[VerifyRun, VerifyRun]:
    direct = url_targets(url, ENDPOINTS, model="tiny", key=KEY, kind="llamacpp", name="llama.cpp")
    front: VerifyTarget = replace(direct[0], name="llama.cpp")
    async with gateway_targets([front]) as doors:
        return await verify(direct, load_scenarios(), FORM), await verify(doors, load_scenarios(), FORM)
