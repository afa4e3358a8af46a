// Calls of the admin API. An answer that is no success is an Error with the gateway's own words.
// The types are in types.js, made of the gateway's own: `@param {import("./types.js").TrafficPage} page`.

import { signal } from "./ui.js";

export const needsLogin = signal(false);
export const me = signal(null); // who is logged in; null until it is known

export async function call(path, options = {}) {
  const { body, method = body === undefined ? "GET" : "POST", signal: abort } = options;
  const answer = await fetch(path, {
    method,
    signal: abort,
    headers: body === undefined ? {} : { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = text;
  }
  if (answer.status === 401 && path.startsWith("/admin/")) needsLogin.value = true; // the session has ended
  if (!answer.ok) throw Object.assign(new Error(wordsOf(value) || `status ${answer.status}`), { status: answer.status, value });
  return value;
}

export function wordsOf(value) {
  if (typeof value === "string") return value;
  const error = value?.error ?? value;
  return typeof error === "string" ? error : error?.message ?? "";
}

// The events of a stream of server-sent events, as {event, data}.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const frames = (rest + value).split(/\r?\n\r?\n/);
    rest = frames.pop();
    for (const frame of frames) yield readFrame(frame);
  }
  if (rest.trim()) yield readFrame(rest);
}

export function readFrame(frame) {
  const found = { event: "", data: "" };
  for (const line of frame.split(/\r?\n/)) {
    if (line.startsWith("event:")) found.event = line.slice(6).trim();
    if (line.startsWith("data:")) found.data += (found.data ? "\n" : "") + line.slice(5).replace(/^ /, "");
  }
  return found;
}

// The lines of a stream of JSON lines, as {data}.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const found = (rest + value).split("\n");
    rest = found.pop();
    for (const line of found) yield { data: line };
  }
  if (rest) yield { data: rest };
}
