"""Writes src/dragoman/upstream/known_models.json: limits and abilities of models whose servers do not tell them.

    python tools/known_models.py ../shared/models/models.jsonl

The input has one JSON object a line, from the public catalogues that `SOURCES` names. Facts only. A server's own list
and a user's configuration always come before this table.
"""

import json
import sys
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent.parent / "src/dragoman/upstream/known_models.json"
KINDS = {"google": "gemini", "ollama-cloud": "ollama"}  # our name of a provider, where it is another one
# OpenRouter's own list says all this. The others are no kinds of ours, or have the models of another one.
LEFT_OUT = {"openrouter", "azure", "vertex", "bedrock", "alibaba", "perplexity", "cohere"}
SOURCES = [
    "models.dev (github anomalyco/models.dev, MIT), as in npm opencode-linux-x64 1.18.34, 2026-09-30",
    "litellm (PyPI 1.108.4, MIT): its price map, 2026-11",
    "pi-ai (npm @earendil-works/pi-ai 1.5.0, MIT): its catalogue, 2026-11-02",
]


def read_facts(row: dict[str, Any]) -> dict[str, Any]:
    """A window only where a source says so: in rows of litellm alone `context` is the largest input."""
    context, most = row.get("context"), row.get("max_output")
    facts = {
        "window": None if row["src"] == ["litellm"] else context,
        "max_input": context if row["src"] == ["litellm"] else row.get("max_input"),
        "max_output": None if most == context else most,  # equal to the window: no limit of its own is known
        "vision": "image" in row["in"] if row.get("in") else None,
        "thinking": row.get("reasoning"),
        "tools": row.get("tools"),
    }
    return {name: value for name, value in facts.items() if value is not None}


def main(source: Path) -> None:
    models: dict[str, dict[str, Any]] = {}
    for line in source.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "chat" and row["provider"] not in LEFT_OUT and (facts := read_facts(row)):
            models.setdefault(KINDS.get(row["provider"], row["provider"]), {})[row["id"]] = facts
    lines = ["{", f'"sources": {json.dumps(SOURCES)},', '"models": {']
    for i, (kind, rows) in enumerate(sorted(models.items())):
        inner = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in sorted(rows.items()))
        lines.append(f'"{kind}": {{\n{inner}\n}}' + ("," if i < len(models) - 1 else ""))
    OUTPUT.write_text("\n".join([*lines, "}", "}"]) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
