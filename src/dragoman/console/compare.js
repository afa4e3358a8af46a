// Two requests side by side: a request, and the same one sent again to another model or in another dialect.

import { h, link, signal } from "./ui.js";
import { head, statusPill, tabs, textDiff, time } from "./parts.js";
import { t } from "./texts.js";

export function compare(before, now) {
  const what = signal("answer");
  const both = [before, now];
  const rows = [
    [t("status"), (one) => statusPill(one.status)], [t("way"), (one) => `${one.dialect || one.door} → ${one.upstream || "?"}/${one.model}`],
    [t("total"), (one) => time(one.seconds * 1000)], [t("attempts"), (one) => one.attempts.length],
    [t("losses"), (one) => ["lost", "changed"].map((rank) => [one.notes.filter((note) => note.rank === rank).length, rank]).filter(([n]) => n).map(([n, rank]) => h("span", { class: `pill ${rank}` }, `${n} ${t(rank)}`))],
  ];
  const last = (one) => one.attempts.at(-1) || {};
  const texts = {
    answer: (one) => answerOf(one), sent: (one) => pretty(last(one).sent), neutral: (one) => pretty(one.canonical),
    notes: (one) => one.notes.map((note) => `${note.kind} ${note.where || "/"}: ${note.why}`).sort().join("\n"),
  };
  return [
    head(t("compareTitle"), t("compareLead"), h("a", { href: link("xray", now.id) }, t("showWire"))),
    h("div", { class: "card wide-table" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, h("th"), both.map((one, i) => h("th", null, h("a", { href: link("xray", one.id) }, i ? t("replayedOne") : t("first_one")))))),
      h("tbody", null, rows.map(([name, pick]) => h("tr", null, h("td", { class: "quiet" }, name), both.map((one) => h("td", null, pick(one)))))))),
    h("div", { class: "columns" }, both.map((one, i) => h("section", { class: "card stack", "aria-label": i ? t("replayedOne") : t("first_one") },
      h("h3", null, `${one.upstream || "?"}/${one.model}`), h("div", { class: "bubble model" }, answerOf(one) || "–")))),
    h("section", { class: "card stack" }, h("div", { class: "row" }, h("h3", null, t("difference")), tabs(Object.keys(texts), what, (name) => t(`compare_${name}`))),
      () => textDiff(texts[what.value](before), texts[what.value](now))),
  ];
}

const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

// What the model said, out of the neutral form.
export function answerOf(row) {
  if (row.frames.canonical.length) return framesUntil(row.frames.canonical, Infinity).text;
  const parts = row.reply_canonical?.choices?.[0]?.parts;
  if (!parts) return typeof row.reply === "string" ? row.reply : row.reply?.error?.message || pretty(row.reply);
  return parts.map((part) => part.text ?? (part.kind === "tool_call" ? `${part.name}(${part.arguments})` : "")).join("\n");
}

// The text of a stream up to a step. Reasoning and calls are in brackets.
export function framesUntil(frames, now) {
  const kinds = {};
  let text = "";
  for (const { step, value } of frames) {
    if (step > now) break;
    if (value?.kind === "part_start") {
      kinds[value.index] = value.part?.kind;
      if (value.part?.kind === "tool_call") text += `${text ? "\n" : ""}→ ${value.part.name} `;
      if (value.part?.kind === "reasoning") text += "‹";
    } else if (value?.kind === "part_delta") text += value.text || "";
    else if (value?.kind === "part_end" && kinds[value.index] === "reasoning") text += "›\n";
  }
  return { text };
}
