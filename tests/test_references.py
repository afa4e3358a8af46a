"""Every short code cited in the code, the tests and the pages is explained on a page of the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PLACES = ("src", "tests", "docs", "bench", "tools")
FAULT = re.compile(r"\b([FT]\d\d)\b(?=[^\w\"'`:]|$)")
NUMBERED = re.compile(r"\b(CLIENTS|FIELD-CASES) (\d+)\b")
CASES = re.compile(r"(?:(?<=[(\"])|(?<=; ))cases? (\d+(?:(?:, |-)\d+)*)(?=[):,;\"])")  # (case 66), "cases 1, 51-53"
MISSION = re.compile(r"\bmission ([A-EW]\d+)\b")
NOT_CITATIONS = re.compile(r"^#? ?[0-9A-F]{6,}|\\u|U\+|utf", re.I)


def read_rows(page: str) -> set[str]:
    """The first cell of every table row of a page."""
    found = re.findall(r"^\| `?([\w -]+?)`? \|", (DOCS / page).read_text(), re.M)
    return {cell.strip() for cell in found}


def read_citations() -> dict[str, str]:
    """Each cited code, and one file that cites it."""
    cited: dict[str, str] = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix not in (".py", ".md", ".toml") or path.name == Path(__file__).name:
                continue
            for line in path.read_text().splitlines():
                for code in find_codes(line):
                    cited.setdefault(code, str(path.relative_to(ROOT)))
    return cited


def find_codes(line: str) -> list[str]:
    if NOT_CITATIONS.search(line):
        return []
    numbered = [f"{kind} {number}" for kind, number in NUMBERED.findall(line)]
    numbered += [f"FIELD-CASES {number}" for found in CASES.findall(line) for number in re.findall(r"\d+", found)]
    return [*FAULT.findall(line), *numbered, *(f"mission {row}" for row in MISSION.findall(line))]


def explained() -> set[str]:
    pages = read_rows("faults.md") | read_rows("references.md")
    cases = {f"FIELD-CASES {number}" for number in read_rows("cases.md")}
    return pages | cases | {f"mission {row}" for row in read_rows("mission.md")}


def test_every_cited_code_is_explained() -> None:
    known = explained()
    missing = {code: path for code, path in read_citations().items() if code not in known}
    assert not missing, f"cited, but explained on no page (docs/references.md lists them): {missing}"


def test_a_code_without_an_explanation_is_found() -> None:
    assert find_codes("waits for its place (F99, CLIENTS 40), as mission Z9 and FIELD-CASES 999 say") == [
        "F99",
        "CLIENTS 40",
        "FIELD-CASES 999",
    ]
    assert find_codes('"cases 901, 998: ids", (case 999)') == ["FIELD-CASES 901", "FIELD-CASES 998", "FIELD-CASES 999"]
    assert not {"F99", "CLIENTS 40", "FIELD-CASES 999"} & explained()
