"""Parts, as every dialect looks at them."""

from dragoman.model.messages import Opaque, Part, Text


def is_plain(part: Part) -> bool:
    """Whether a part is a text and nothing else: alone in its turn it could as well be a bare string."""
    return type(part) is Text and not (
        part.extras or part.cache or part.citations or part.seal or part.logprobs is not None
    )


def opaque_word(part: Opaque) -> str:
    """What a foreign part calls itself, for a note."""
    word = part.body.get("type")
    return word if type(word) is str else "this part"
