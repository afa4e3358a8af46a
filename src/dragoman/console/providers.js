// Providers: is each one healthy, what of its limits is used, which models it serves.

import { h, onRemove, signal } from "./ui.js";
import { call } from "./api.js";
import { t } from "./texts.js";

export function providers() {
  const found = signal(null);
  const problem = signal("");
  const load = () => call("/health").then((value) => (found.value = value), (error) => (problem.value = error.message));
  load();
  const timer = setInterval(load, 3000);
  onRemove(() => clearInterval(timer));
  return [
    h("h2", null, t("providers")),
    () => problem.value && h("p", { class: "bad", role: "alert" }, problem.value),
    () => found.value?.providers && h("div", { class: "columns" }, Object.entries(found.value.providers).map(([name, one]) =>
      card(name, one, found.value.rate_limits[name] || {}, found.value.queue_sizes[name] || 0))),
  ];
}

function card(name, one, limits, waiting) {
  const state = one.breaker === "closed" ? "ok" : one.breaker;
  return h("section", { class: "card", "aria-label": name },
    h("h3", null, h("strong", null, name), h("span", { class: state === "ok" ? "fine" : "bad" }, `● ${t(state)}`)),
    h("p", { class: "small quiet" }, `${one.kind} · ${one.dialect}${one.host ? " · " + one.host : ""}`),
    h("p", { class: "small" }, `${one.running} ${t("running")}, ${waiting} ${t("waiting")}, ${one.sent} ${t("sent")}, ${one.failed} ${t("failed")}`),
    one.keys.count ? h("p", { class: "small quiet" }, t("resting", { n: one.keys.resting + one.keys.disabled, all: one.keys.count })) : null,
    Object.keys(limits).length ? Object.entries(limits).map(([kind, limit]) => bar(kind, limit)) : h("p", { class: "small quiet" }, t("noLimits")),
    one.models.length ? h("details", null, h("summary", { class: "small" }, `${t("models")} (${one.models.length})`), h("ul", null, one.models.map((model) => h("li", { class: "mono" }, model)))) : null);
}

function bar(kind, { limit, used }) {
  const part = Math.min(100, (used / Math.max(1, limit)) * 100);
  const fill = h("i", { class: part >= 100 ? "full" : "" });
  fill.style.width = `${part}%`;
  return h("div", { class: "small" }, `${kind}: ${used.toLocaleString()} / ${limit.toLocaleString()}`,
    h("div", { class: "bar", role: "meter", "aria-label": kind, "aria-valuenow": used, "aria-valuemin": 0, "aria-valuemax": limit }, fill));
}
