"""The report as one page that needs nothing else: the matrix as a heat map, and the traffic of each cell."""

from html import escape
from importlib.resources import files
from math import log10

from dragoman.conformance.report import GLYPHS, show_body
from dragoman.conformance.runner import VerifyCell, VerifyRun
from dragoman.conformance.runner_play import Try
from dragoman.conformance.runner_wire import WireExchange

LONG, SHORT = 3000, 700  # characters of a body in a red cell, in another


def as_html(run: VerifyRun, title: str, made: str = "") -> str:
    """`made` says when and with what; a page without it is the same for the same run."""
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(made)}</p>' if made else "",
        _totals(run),
        _failures(run),
        "<h2>Matrix</h2>",
        _key(),
        _matrix(run),
        "<h2>What was asked and said</h2>",
        *(_target(run, i) for i in range(len(run.targets))),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{escape(title)}</title><style>{_read('report.css')}</style></head><body><main>"
        + "\n".join(body)
        + f"</main><script>{_read('report.js')}</script></body></html>\n"
    )


def _read(name: str) -> str:
    return files("dragoman.conformance").joinpath(name).read_text("utf-8")


def _totals(run: VerifyRun) -> str:
    failed = run.count("FAIL")
    tiles = [
        ("p", "PASS", run.count("PASS")),
        ("f" if failed else "s", "FAIL", failed),
        ("s", "SKIP", run.count("SKIP")),
    ]
    shown = "".join(f'<div class="{look}"><b>{count}</b>{word}</div>' for look, word, count in tiles)
    return (
        f'<div class="totals">{shown}<div><b>{len(run.targets)}</b>targets</div>'
        f"<div><b>{len(run.scenarios)}</b>scenarios</div><div><b>{run.seconds:.1f} s</b>in all</div></div>"
    )


def _failures(run: VerifyRun) -> str:
    rows = [
        f'<li><a href="#{_anchor(run, cell)}">{escape(cell.target)} · {escape(cell.scenario)}</a>: '
        f"{escape(cell.words[:300])}</li>"
        for cell in run.failures()
    ]
    return f"<h2>Failures</h2><ul>{''.join(rows)}</ul>" if rows else ""


def _key() -> str:
    heats = "".join(f'<i class="PASS" style="--heat:{heat}"></i>' for heat in (0.45, 0.7, 1))
    return (
        f'<div class="key"><span>{heats}✓ PASS, the stronger the quicker</span>'
        '<span><i class="FAIL"></i>✗ FAIL</span><span><i class="SKIP"></i>· SKIP</span></div>'
    )


def _matrix(run: VerifyRun) -> str:
    heads = "".join(f"<th scope=col><span>{escape(target.name)}</span></th>" for target in run.targets)
    lines = [f'<div class="scroll"><table><thead><tr><th scope=col>scenario</th>{heads}</tr></thead><tbody>']
    group = ""
    for scenario in run.scenarios:
        if scenario.group != group:
            group = scenario.group
            lines.append(f'<tr class="group"><th>{escape(group)}</th>{"<td></td>" * len(run.targets)}</tr>')
        cells = "".join(_square(run, run.cells[target.name, scenario.name]) for target in run.targets)
        head = f"{escape(scenario.name)}<small>{escape(scenario.title)}</small>"
        lines.append(f"<tr><th scope=row>{head}</th>{cells}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _label(run: VerifyRun, place: int) -> str:
    target = run.targets[place]
    return f"{target.name} · {target.model}" if target.model and target.model not in target.name else target.name


def _square(run: VerifyRun, cell: VerifyCell) -> str:
    words = f"{cell.target} · {cell.scenario}: {cell.outcome}"
    words += f" in {cell.seconds * 1000:.0f} ms" if cell.outcome == "PASS" else f", {cell.words[:200]}"
    heat = f' style="--heat:{_heat(cell.seconds)}"' if cell.outcome == "PASS" else ""
    return (
        f'<td><a class="{cell.outcome}"{heat} href="#{_anchor(run, cell)}" title="{escape(words)}" '
        f'aria-label="{escape(words)}">{GLYPHS[cell.outcome]}</a></td>'
    )


def _heat(seconds: float) -> float:
    """1 for a hundredth of a second and less, 0.45 for half a minute and more."""
    place = (log10(max(seconds, 0.01)) + 2) / 3.5
    return round(1 - 0.55 * min(max(place, 0.0), 1.0), 2)


def _anchor(run: VerifyRun, cell: VerifyCell) -> str:
    columns = [target.name for target in run.targets]
    rows = [scenario.name for scenario in run.scenarios]
    return f"c{columns.index(cell.target)}-{rows.index(cell.scenario)}"


def _target(run: VerifyRun, place: int) -> str:
    target = run.targets[place]
    counts = ", ".join(f"{run.count(word, target.name)} {word}" for word in ("PASS", "FAIL", "SKIP"))
    cells = "\n".join(_details(run, run.cells[target.name, scenario.name]) for scenario in run.scenarios)
    return (
        f"<details><summary><b>{escape(_label(run, place))}</b> "
        f'<span class="soft">{escape(target.dialect)} · {counts}</span></summary><div>{cells}</div></details>'
    )


def _details(run: VerifyRun, cell: VerifyCell) -> str:
    words = f"<p>{escape(cell.words)}</p>" if cell.words else ""
    tries = "".join(_try(one, LONG if cell.outcome == "FAIL" else SHORT) for one in cell.tries)
    return (
        f'<details class="cell" id="{_anchor(run, cell)}"><summary>'
        f'<span class="tag {cell.outcome}">{cell.outcome}</span>'
        f'{escape(cell.scenario)} <span class="soft">{cell.seconds * 1000:.0f} ms</span></summary>'
        f"<div>{words}{tries}</div></details>"
    )


def _try(one: Try, longest: int) -> str:
    notes = "".join(f"<li>{escape(f'{n.kind} {n.where}: {n.why}')}</li>" for n in one.notes)
    notes_list = f"<h4>Notes of the conversion</h4><ul>{notes}</ul>" if notes else ""
    exchanges = "".join(_exchange(exchange, longest) for exchange in one.exchanges)
    return f"<h4>{one.mode}: {one.outcome}</h4>{notes_list}{exchanges}"


def _exchange(exchange: WireExchange, longest: int) -> str:
    failed = exchange.failure.message if exchange.failure is not None else ""
    remarks = [exchange.remark, failed, "we hung up" if exchange.left else ""]
    status = f"{exchange.status or 'no answer'}, {exchange.seconds * 1000:.0f} ms"
    line = "; ".join([status, *(remark for remark in remarks if remark)])
    request = f"<pre>{escape(show_body(exchange.request, longest))}</pre>" if exchange.request else ""
    reply = f"<pre>{escape(show_body(exchange.reply, longest))}</pre>" if exchange.reply else ""
    return f"<p><code>{escape(exchange.method)} {escape(exchange.path)}</code></p>{request}<p>{escape(line)}</p>{reply}"
