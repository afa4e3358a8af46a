"""The words of the console: two languages, with the same keys, and none is missing or left over."""

import re

from dragoman.console import all_files

HANGUL = re.compile(r"[가-힣]")
SAME_IN_BOTH = {"mcp"}
MADE_OF = r"`(\w+_)\$\{"  # t(`phase_${name}`)


def scripts() -> dict[str, str]:
    return {name: data.decode() for name, (data, kind) in all_files().items() if "javascript" in kind}


def texts() -> dict[str, tuple[str, str]]:
    text = scripts()["texts.js"]
    rows = re.findall(r'^  (\w+): \["(.+)", "(.+)"\],$', text, re.M)
    assert len(rows) == len(re.findall(r"^  \w+: \[", text, re.M)), "each text is on one line, in English and Korean"
    assert len(rows) == len({name for name, _, _ in rows}), "a key stands twice"
    return {name: (english, korean) for name, english, korean in rows}


def test_every_text_is_there_in_korean_too() -> None:
    for name, (english, korean) in texts().items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", korean)), name
        if name == "language":  # the name of the other language
            assert HANGUL.search(english)
        elif name not in SAME_IN_BOTH:
            assert HANGUL.search(korean), f"{name} is not translated: {korean}"
            assert not HANGUL.search(english), name


def test_every_text_that_is_asked_for_exists() -> None:
    known = set(texts())
    for name, text in scripts().items():
        if name != "texts.js":
            assert set(re.findall(r'\bt\("(\w+)"', text)) <= known, name
            for start in re.findall(MADE_OF, text):
                assert any(key.startswith(start) for key in known), f"{name}: {start}"


def test_no_text_is_left_over() -> None:
    whole = "\n".join(text for name, text in scripts().items() if name != "texts.js")
    starts = tuple(re.findall(MADE_OF, whole))
    for name in texts():
        assert name.startswith(starts) or re.search(rf"\b{name}\b", whole), f"{name} is used nowhere"
