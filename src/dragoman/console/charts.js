// Charts of our own: lines over minutes, bars over days.

import { h } from "./ui.js";
import { t } from "./texts.js";

// `lines`: [{values, name}], all over the same minutes. The pointer shows the value of a minute.
export function chart(title, number, lines, write = (value) => value) {
  const most = Math.max(1e-9, ...lines.flatMap((line) => line.values));
  const size = lines[0].values.length;
  const at = (i) => (i / Math.max(1, size - 1)) * 100;
  const up = (value) => 39 - (value / most) * 36;
  const tip = h("span", { class: "tip" });
  const mark = h("line", { x1: 0, x2: 0, y1: 0, y2: 40, visibility: "hidden" });
  const drawing = h("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${number}` },
    lines.map(({ values, name }, i) => [
      i === lines.length - 1 && h("polygon", { class: name, points: `0,40 ${values.map((v, j) => `${at(j)},${up(v)}`).join(" ")} 100,40` }),
      h("polyline", { class: name, points: values.map((v, j) => `${at(j)},${up(v)}`).join(" ") })]), mark);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const i = Math.max(0, Math.min(size - 1, Math.round(((event.clientX - box.left) / box.width) * (size - 1))));
    mark.setAttribute("x1", at(i));
    mark.setAttribute("x2", at(i));
    mark.setAttribute("visibility", "visible");
    tip.textContent = `${t("minutesAgo", { n: size - 1 - i })}: ${lines.map((line) => write(line.values[i])).reverse().join(" / ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    tip.textContent = "";
  });
  return h("figure", { class: "card chart" }, h("figcaption", null, h("span", null, title), tip), h("div", { class: "figure" }, number), drawing,
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", null, t("minutesAgo", { n: size - 1 })), h("span", null, t("now"))));
}

const STEP = Math.log(1.1); // as the gateway's histograms have it

export const bucketOf = (ms) => Math.round(Math.log(Math.max(ms, 1)) / STEP);

// A quantile of a histogram {bucket: count}.
export function quantile(histogram, q) {
  const buckets = Object.keys(histogram).map(Number).sort((a, b) => a - b);
  const all = buckets.reduce((sum, bucket) => sum + histogram[bucket], 0);
  let seen = 0;
  for (const bucket of buckets) {
    seen += histogram[bucket];
    if (seen >= q * all) return Math.exp(bucket * STEP);
  }
  return 0;
}

// Bars side by side, one for each day: [{name, value, words}].
export function dayBars(title, rows) {
  const most = Math.max(1e-9, ...rows.map((row) => row.value));
  return h("div", { class: "stack" },
    h("div", { class: "bars", role: "img", "aria-label": `${title}: ${rows.map((row) => `${row.name} ${row.words}`).join(", ")}` }, rows.map((row) => {
      const fill = h("i");
      fill.style.height = `${(row.value / most) * 100}%`;
      return h("span", { title: `${row.name}\n${row.words}` }, fill);
    })),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", null, rows[0]?.name), rows.length > 1 ? h("span", null, rows.at(-1).name) : null));
}
