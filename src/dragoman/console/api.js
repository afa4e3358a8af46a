// Calls of the admin API. An answer that is no success is an Error with the gateway's own words.

import { signal } from "./ui.js";

export const needsLogin = signal(false);

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
  if (answer.status === 401 || answer.status === 403) needsLogin.value = true;
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
    if (done) return;
    const frames = (rest + value).split(/\r?\n\r?\n/);
    rest = frames.pop();
    for (const frame of frames) yield readFrame(frame);
  }
}

export function readFrame(frame) {
  const found = { event: "", data: "" };
  for (const line of frame.split(/\r?\n/)) {
    if (line.startsWith("event:")) found.event = line.slice(6).trim();
    if (line.startsWith("data:")) found.data += (found.data ? "\n" : "") + line.slice(5).replace(/^ /, "");
  }
  return found;
}
