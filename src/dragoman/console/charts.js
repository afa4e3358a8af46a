// Small charts: one line or two over minutes.

import { h } from "./ui.js";

export function chart(title, number, lines) {
  const most = Math.max(1e-9, ...lines.flatMap((line) => line.values));
  return h("figure", { class: "card chart" },
    h("figcaption", { class: "quiet small" }, title),
    h("div", { class: "figure" }, number),
    h("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${number}` },
      lines.map(({ values, name }) =>
        h("polyline", { class: name, points: values.map((v, i) => `${(i / Math.max(1, values.length - 1)) * 100},${39 - (v / most) * 37}`).join(" ") }))));
}

export function perMinute(rows, minutes, now, pick) {
  const sums = new Array(minutes).fill(0);
  for (const row of rows) {
    const ago = Math.floor((now - row.time) / 60000);
    if (ago >= 0 && ago < minutes) sums[minutes - 1 - ago] += pick(row);
  }
  return sums;
}

export function quantilePerMinute(rows, minutes, now, pick, q) {
  const found = Array.from({ length: minutes }, () => []);
  for (const row of rows) {
    const ago = Math.floor((now - row.time) / 60000);
    const value = pick(row);
    if (value !== null && ago >= 0 && ago < minutes) found[minutes - 1 - ago].push(value);
  }
  return found.map((values) => quantile(values, q));
}

export function quantile(values, q) {
  if (!values.length) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}
