// Providers: is each one healthy, what of its limits is used, how fast it is, which models it serves; and does it work?

import { h, link, onRemove, signal } from "./ui.js";
import { call, me } from "./api.js";
import { count, empty, fullTime, head, problem, sure, time } from "./parts.js";
import { t } from "./texts.js";

export function providers() {
  const found = signal(null);
  const speeds = signal({});
  const checks = signal(null);
  const trouble = signal("");
  const fail = (error) => (trouble.value = error.message);
  const load = () => call("/health").then((value) => (found.value = value), fail);
  const loadSpeeds = () => call("/admin/v1/providers").then((value) => (speeds.value = value.latencies), () => null);
  let soon = 0;
  const loadChecks = () => call("/admin/v1/verify").then((value) => {
    checks.value = value;
    clearTimeout(soon);
    if (value.runs.some((run) => !run.done)) soon = setTimeout(loadChecks, 500);
  }, fail);
  load();
  loadSpeeds();
  loadChecks();
  const timers = [setInterval(load, 3000), setInterval(loadSpeeds, 15000)];
  onRemove(() => (timers.forEach(clearInterval), clearTimeout(soon)));
  const verify = (names) => {
    const view = checks.peek();
    const groups = [...new Set(view.scenarios.map((one) => one.group))];
    const boxes = groups.map((group) => h("input", { type: "checkbox", value: group, checked: true, onchange: () => (about.value = guess()) }));
    const guess = () => view.scenarios.filter((one) => boxes.some((box) => box.checked && box.value === one.group)).reduce((sum, one) => sum + one.requests, 0) * names.length;
    const about = signal(guess());
    const inside = [h("p", null, t("verifyHelp")), h("div", { class: "row" }, groups.map((group, i) => h("label", { class: "check" }, boxes[i], group))), h("p", { class: "quiet" }, () => t("verifyCount", { n: about.value }))];
    const start = () => call("/admin/v1/verify", { body: { providers: names, groups: boxes.filter((box) => box.checked).map((box) => box.value) } }).then(loadChecks, fail);
    sure(t("verifyTitle", { names: names.join(", ") }), inside, start, t("verifyNow"));
  };
  return [
    head(t("providers"), t("providersLead"), () => {
      const view = checks.value;
      if (!view?.available || !view.targets.length || me.value?.read_only) return null;
      const running = view.runs.find((run) => !run.done);
      return running ? h("button", { onclick: () => call("/admin/v1/verify", { method: "DELETE" }).then(loadChecks, fail) }, t("stop"))
        : h("button", { class: "main", onclick: () => verify(view.targets.map((one) => one.name.split(" ")[0])) }, t("verifyAll"));
    }),
    () => trouble.value && problem(trouble.value),
    () => found.value?.providers && h("div", { class: "columns" }, Object.entries(found.value.providers).map(([name, one]) =>
      card(name, one, found.value.rate_limits[name] || {}, found.value.queue_sizes[name] || 0, speeds.value[name],
        checks.value?.available && one.kind !== "demo" && !me.value?.read_only && !checks.value.runs.some((run) => !run.done) ? () => verify([name]) : null))),
    () => checks.value && results(checks.value),
  ];
}

function card(name, one, limits, waiting, speed, verify) {
  const up = one.breaker === "closed";
  const facts = [[t("running"), one.running], [t("waiting"), waiting], [t("sent"), count(one.sent)], [t("failed"), count(one.failed)],
    [t("median"), speed ? time(speed.median_ms) : "–"], ["p95", speed ? time(speed.p95_ms) : "–"]];
  return h("section", { class: "card stack", "aria-label": name },
    h("div", { class: "row" }, h("h3", null, name), h("span", { class: `pill ${up ? "PASS" : "FAIL"}` }, h("span", { class: "dot" }), t(`breaker_${one.breaker}`)), h("span", { class: "space" }),
      verify && h("button", { class: "small", onclick: verify }, t("verifyNow"))),
    h("p", { class: "small quiet" }, [...new Set([one.kind, one.dialect])].join(" · "), one.host ? ` · ${one.host}` : ""),
    h("dl", { class: "facts small" }, facts.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", { class: key === t("failed") && one.failed ? "bad" : "" }, value)))),
    one.keys.resting + one.keys.disabled ? h("p", { class: "small warn" }, t("resting", { n: one.keys.resting + one.keys.disabled, all: one.keys.count })) : null,
    Object.keys(limits).length ? Object.entries(limits).map(([kind, limit]) => bar(kind, limit)) : h("p", { class: "small quiet" }, t("noLimits")),
    h("div", { class: "row" }, one.models.length ? h("details", { class: "grow" }, h("summary", { class: "small" }, t("modelCount", { n: one.models.length })), h("ul", null, one.models.map((model) => h("li", { class: "mono" }, model)))) : h("span", { class: "small quiet grow" }, t("anyModel")),
      h("a", { class: "small", href: link("traffic", "", { q: `upstream:${name}` }) }, t("traffic"))));
}

function bar(kind, { limit, used }) {
  const part = Math.min(100, (used / Math.max(1, limit)) * 100);
  const fill = h("i", { class: part >= 100 ? "full" : part >= 80 ? "near" : "" });
  fill.style.width = `${part}%`;
  return h("div", { class: "small" }, h("div", { class: "row" }, h("span", { class: "grow" }, t(kind)), h("span", { class: "number" }, `${count(used)} / ${count(limit)}`)),
    h("div", { class: "bar", role: "meter", "aria-label": t(kind), "aria-valuenow": used, "aria-valuemin": 0, "aria-valuemax": limit }, fill));
}

// ---------------------------------------------------------------- the matrix of `verify`

function results(view) {
  if (!view.runs.length) return view.available ? empty("providers", t("noRuns"), t("noRunsHelp", { n: view.scenarios.length }), "dragoman verify") : empty("providers", t("noVerify"), t("noVerifyHelp"), "dragoman verify");
  const chosen = signal(view.runs[0].id);
  return () => {
    const run = view.runs.find((one) => one.id === chosen.value) || view.runs[0];
    const before = view.runs.slice(view.runs.indexOf(run) + 1).find((one) => one.done && one.targets.some((target) => run.targets.some((mine) => mine.name === target.name)));
    return h("section", { class: "card stack", "aria-label": t("matrix") },
      h("div", { class: "row" }, h("h3", { class: "grow" }, t("matrix")),
        h("select", { "aria-label": t("history"), onchange: (event) => (chosen.value = Number(event.target.value)) }, view.runs.map((one) => h("option", { value: one.id, selected: one.id === run.id }, `${fullTime(one.id)} · ${one.targets.map((target) => target.name).join(", ")}`)))),
      progress(run), changes(run, before), matrix(run, before, view));
  };
}

const of = (run, outcome) => run.cells.filter((cell) => cell.outcome === outcome).length;

function progress(run) {
  const fill = h("i");
  fill.style.width = `${(run.cells.length / Math.max(1, run.total)) * 100}%`;
  return h("div", { class: "stack" },
    h("div", { class: "row", role: "status" }, ["PASS", "FAIL", "SKIP"].map((outcome) => h("span", { class: `pill ${outcome}` }, `${of(run, outcome)} ${t(outcome)}`)),
      h("span", { class: "quiet small" }, run.done ? t("ranFor", { time: time(run.seconds * 1000), who: run.who }) : t("progress", { n: run.cells.length, all: run.total })), run.trouble ? h("span", { class: "bad small" }, run.trouble) : null),
    run.done ? null : h("div", { class: "bar", role: "progressbar", "aria-label": t("matrix"), "aria-valuenow": run.cells.length, "aria-valuemin": 0, "aria-valuemax": run.total }, fill));
}

const outcomeIn = (run, cell) => run?.cells.find((one) => one.target === cell.target && one.scenario === cell.scenario)?.outcome;

function changes(run, before) {
  if (!before) return null;
  const other = run.cells.filter((cell) => outcomeIn(before, cell) && outcomeIn(before, cell) !== cell.outcome);
  if (!other.length) return run.done ? h("p", { class: "small quiet" }, t("noChanges", { time: fullTime(before.id) })) : null;
  return h("div", { class: "card inner" }, h("h3", null, t("changesSince", { time: fullTime(before.id) })),
    h("ul", null, other.map((cell) => h("li", { class: "small" }, `${cell.target} · ${cell.scenario}: `, h("span", { class: `pill ${outcomeIn(before, cell)}` }, t(outcomeIn(before, cell))), " → ", h("span", { class: `pill ${cell.outcome}` }, t(cell.outcome)), cell.words ? ` ${cell.words}` : ""))));
}

const GLYPHS = { PASS: "✓", FAIL: "✗", SKIP: "·" };

function matrix(run, before, view) {
  const words = signal(null);
  const cells = new Map(run.cells.map((cell) => [`${cell.target}\n${cell.scenario}`, cell]));
  const title = (name) => view.scenarios.find((one) => one.name === name)?.title || name;
  return [
    h("div", { class: "wide-table" }, h("table", { class: "matrix" },
      h("thead", null, h("tr", null, h("th", null, t("scenario")), run.targets.map((target) => h("th", { title: `${target.dialect} ${target.model}` }, target.name)))),
      h("tbody", null, run.scenarios.map((name) => h("tr", null, h("th", { scope: "row", title: title(name) }, title(name)), run.targets.map((target) => {
        const cell = cells.get(`${target.name}\n${name}`);
        if (!cell) return h("td", { class: "SKIP" }, run.done ? "" : "…");
        const was = outcomeIn(before, cell);
        return h("td", { class: `${cell.outcome}${was && was !== cell.outcome ? " was" : ""}` }, h("button", { "aria-label": `${target.name} ${title(name)}: ${t(cell.outcome)}`, title: cell.words, onclick: () => (words.value = cell) }, GLYPHS[cell.outcome]));
      })))))),
    () => words.value && h("p", { class: "card inner small", role: "status" }, h("span", { class: `pill ${words.value.outcome}` }, t(words.value.outcome)), ` ${words.value.target} · ${title(words.value.scenario)} · ${time(words.value.seconds * 1000)} `, words.value.words),
  ];
}
