"""A gateway in front of one scripted strict provider for each of several dialects."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dragoman.testing import Provider, serve
from tests.gateway.house import CANARY, House, open_house, upstream

KINDS = {"openai_chat": "openai", "openai_responses": "openai"}


class StrictProviders:
    def __init__(self, house: House, providers: dict[str, Provider]) -> None:
        self.house, self.providers = house, providers


@contextmanager
def serve_strict_providers(*dialects: str) -> Iterator[StrictProviders]:
    """Each provider has the model `DIALECT-model`."""
    with ExitStack() as stack:
        providers = {name: stack.enter_context(serve(name, key=CANARY)) for name in dialects}
        specs = [
            upstream(name, name, provider.base_url, kind=KINDS.get(name, name), models=(f"{name}-model",))
            for name, provider in providers.items()
        ]
        yield StrictProviders(stack.enter_context(open_house(*specs)), providers)
