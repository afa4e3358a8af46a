"""The keys of `[providers.NAME]` and `[[route]]` in dragoman.toml, with their types and one line about each."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from dragoman.read_struct import MOST, OneOrMore, Texts, ZeroOrMore, about
from dragoman.upstream.keys import Auth
from dragoman.upstream.spec import Caps, Timeouts


class ProviderTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: a table `[providers.NAME]`."""

    kind: Annotated[
        str | None,
        about(
            "a kind of server (`dragoman providers` lists them), or `demo`. Left out, the provider's "
            "name is its kind; a name that is no kind means a server that is compatible with OpenAI"
        ),
    ] = None
    api_key: Annotated[
        Texts,
        about("its key. Left out, the environment variable of its kind is read, such as `OPENAI_API_KEY`"),
    ] = ()
    api_keys: Annotated[Texts, about("several keys, used in turn")] = ()
    keys: Annotated[Texts, about("the same as `api_keys`")] = ()
    models: Annotated[
        Texts,
        about(
            "the models to list. Left out, the server is asked for its list. A model that is not "
            "listed is reached as `name/model`"
        ),
    ] = ()
    base_url: Annotated[
        str | None, about("`http(s)://host[:port][/path]`. Needed for kinds that have no address of their own")
    ] = None
    dialect: Annotated[Texts, about("the protocol it speaks, if it is not the one of its kind")] = ()
    dialects: Annotated[Texts, about("all protocols it speaks, the preferred one first")] = ()
    auth: Annotated[Auth | None, about("the header that carries the key")] = None
    headers: Annotated[dict[str, str], about("more headers for every request")] = {}
    rpm: Annotated[OneOrMore | None, about("requests in any 60 seconds")] = None
    tpm: Annotated[OneOrMore | None, about("tokens in any 60 seconds")] = None
    at_once: Annotated[OneOrMore | None, about("requests at the same time")] = None
    concurrency: Annotated[OneOrMore | None, about("the same as `at_once`")] = None
    queue: Annotated[ZeroOrMore, about("requests that may wait")] = 100
    weight: Annotated[
        float, Meta(ge=0, le=MOST), about("how often it is asked first, if several providers list a model")
    ] = 1.0
    timeouts: Annotated[Timeouts, about("seconds; see below")] = Timeouts()
    caps: Annotated[Caps, about("the largest answers that are read; see below")] = Caps()
    profile: Annotated[
        dict[str, Any],
        about(
            "what the server takes or rejects; `dragoman providers NAME` shows all fields. Often "
            'used: `rejects = ["seed"]`; `think_tags = ["think"]` if thoughts come inside the text; '
            "`context = 32768` for the window of your Ollama"
        ),
    ] = {}
    stream_usage: Annotated[bool, about("`false`: a stream is not asked for its token counts")] = True
    proxy: Annotated[
        bool | str,
        about(
            "`false`: a direct connection. Or `http://user:password@host:port`. Left out, "
            "`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` decide. Servers on this machine "
            "are always reached directly. SOCKS proxies are not used"
        ),
    ] = True
    ca_file: Annotated[
        str,
        about(
            "a file of certificates to trust instead of the system's. `SSL_CERT_FILE` does the same for all providers"
        ),
    ] = ""
    client_cert: Annotated[str, about("a certificate that the gateway shows to the server")] = ""
    client_key: Annotated[str, about("the key of `client_cert`, if it is not in the same file")] = ""


class RouteWhen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions that a request must meet for a rule."""

    model: Annotated[Texts, about("names, with `*`")] = ()
    thinking: Annotated[bool | None, about("the request asks the model to think")] = None
    images: Annotated[bool | None, about("the request shows pictures")] = None
    web_search: Annotated[bool | None, about("the request lets the provider search the web")] = None
    tools: Annotated[bool | None, about("the request has tools")] = None
    tokens_over: Annotated[ZeroOrMore | None, about("the prompt has about more tokens than this")] = None


class RouteKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: a table `[[route]]`."""

    to: Annotated[
        Annotated[str, Meta(min_length=1)] | Annotated[tuple[str, ...], Meta(min_length=1)],
        about("a model, or several that are tried in turn"),
    ]
    when: Annotated[RouteWhen, about("what the request must show. Without it, the rule fits every request")] = (
        RouteWhen()
    )
