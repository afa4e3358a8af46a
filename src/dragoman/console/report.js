// A request to take away: as curl, as a case for a test, as one HTML file for a bug report.

import { jsonLines, markOf } from "./json_view.js";
import { marksOf } from "./xray.js";
import { time } from "./parts.js";
import { t } from "./texts.js";

export function asCurl(row) {
  const body = JSON.stringify(row.asked).replaceAll("'", "'\\''");
  return `curl ${location.origin}${row.path} \\\n  -H 'content-type: application/json' \\\n  -H "authorization: Bearer $DRAGOMAN_KEY" \\\n  -d '${body}'`;
}

export function asCase(row) {
  const last = row.attempts.at(-1) || {};
  return { from: row.dialect, to: last.dialect, path: row.path, upstream: row.upstream, model: row.model, request: row.asked, sent: last.sent ?? null, reply: last.reply ?? null, answer: row.reply, notes: row.notes };
}

const escape = (text) => String(text).replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);

// No script in it, and nothing is loaded. Secrets were masked by the gateway.
export function asHtml(row) {
  const last = row.attempts.at(-1) || {};
  const sections = [
    ["request", [[`${t("client")} ${row.path}`, row.asked, "where"], [t("canonical"), row.canonical, "canonical"], [`${t("provider")} ${row.upstream}`, last.sent, "target"]]],
    ["answer", [[`${t("provider")} ${row.upstream}`, last.reply, "where"], [t("canonical"), row.reply_canonical ?? row.frames.canonical.map((frame) => frame.value), "canonical"], [t("client"), row.reply, "target"]]],
  ];
  const title = `X-ray ${row.id}`;
  return `<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escape(title)}</title><style>${STYLE}</style></head><body>
<h1>${escape(title)}</h1><p>${escape(`${row.door} → ${row.upstream}/${row.model}, ${row.status || t("left")}, ${time(row.seconds * 1000)}`)}</p>
<table>${row.notes.map((note) => `<tr class="${escape(note.kind)}"><td>${escape(t(note.kind))}<td><code>${escape(note.where || "/")}</code><td>${escape(note.why)}`).join("")}</table>
<table>${row.attempts.map((one) => `<tr><td>${escape(`${one.upstream}/${one.model}`)}<td>${escape(one.failure || one.status || "ok")}<td>${escape(one.times ? Object.entries(one.times).map(([name, ms]) => `${name} ${ms}`).join(", ") : "")}`).join("")}</table>
${sections.map(([side, columns]) => `<h2>${escape(t(side))}</h2><main>${columns.map(([name, value, field]) => `<section><h3>${escape(name)}</h3><pre>${body(value, marksOf(row.notes, side, field))}</pre></section>`).join("")}</main>`).join("\n")}
</body></html>`;
}

function body(value, marks) {
  if (typeof value === "string") return escape(value);
  if (value === null || value === undefined) return "–";
  return jsonLines(value).map((line) => {
    const text = escape(`${"  ".repeat(line.deep)}${line.key === null ? "" : `${JSON.stringify(line.key)}: `}${line.text}${line.more ? "," : ""}`);
    const kind = markOf(marks, line.at);
    return kind ? `<span class="${escape(kind)}">${text}</span>` : text;
  }).join("\n");
}

const STYLE = ":root{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif}body{margin:2rem}main{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:1rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #8886;padding:.7rem;border-radius:.5rem;font-size:12.5px}td{padding:.2rem .7rem;vertical-align:top}table{margin:.5rem 0}.dropped{background:#e5484d33}.altered{background:#f5a62333}.invented{background:#3b82f633}.repaired{background:#30a46c33}pre span{display:inline-block;width:100%}";
