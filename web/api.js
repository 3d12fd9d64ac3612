// The one way to ask the node something. Knows the CSRF token and turns every failure into a Problem.

/** What went wrong, in the words of the node where it has any. */
export class Problem extends Error {
  constructor({ title, detail = "", status = 0, code = null, field = null, flaws = [], retryAfter = null, silent = false }) {
    super(title);
    Object.assign(this, { title, detail, status, code, field, flaws, retryAfter });
    // Silent problems need no words on the page: the reader left it, or sees the login already.
    this.silent = silent;
  }
}

let csrf = null;
let onUnauthorized = () => {};

export function useCsrf(token) {
  csrf = token;
}

/** `handler` runs whenever the node wants a key: on any 401. */
export function whenUnauthorized(handler) {
  onUnauthorized = handler;
}

export function unauthorized() {
  onUnauthorized();
}

let asking = 0;
let waiting = [];

/** Resolves when no answer is on its way any more, whatever asked for it. */
export function whenQuiet() {
  return new Promise((done) => {
    waiting.push(done);
    look();
  });
}

// After a turn: whoever got an answer may ask the next question.
function look() {
  setTimeout(() => {
    if (asking) return;
    const told = waiting;
    waiting = [];
    for (const done of told) done();
  });
}

async function call(method, path, options) {
  asking += 1;
  try {
    return await send(method, path, options);
  } finally {
    asking -= 1;
    if (!asking) look();
  }
}

async function send(method, path, { body, signal, login = false, exact = false, again = false } = {}) {
  const headers = { accept: "application/json, application/problem+json" };
  const token = method === "GET" ? null : csrf;
  if (token) headers["x-csrf-token"] = token;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  let content;
  try {
    answer = await fetch(path, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
    content = await read(answer, exact);
  } catch {
    throw new Problem({
      title: "The node does not answer",
      detail: "It may be restarting, or the network between you and it is down.",
      silent: signal?.aborted,
    });
  }
  if (answer.ok) return content;

  // Another tab may have logged in anew since this page learned its token: learn it and try once more.
  if (answer.status === 403 && method !== "GET" && !again) {
    const session = await call("GET", "/api/v1/session", { signal });
    if (session.csrf !== token) {
      csrf = session.csrf;
      return call(method, path, { body, signal, login, exact, again: true });
    }
  }
  const handled = answer.status === 401 && !login;
  if (handled) unauthorized();
  throw new Problem({
    title: content?.title ?? `The node answered ${answer.status}`,
    detail: content?.detail ?? content?.error ?? "",
    status: answer.status,
    code: content?.code,
    field: content?.field,
    flaws: content?.flaws,
    retryAfter: Number(answer.headers.get("retry-after")) || null,
    silent: handled || signal?.aborted,
  });
}

// A number that would lose digits stays as it was written, where the browser can do that.
const faithful = (_, value, context) => (typeof value === "number" && context?.source !== undefined && String(value) !== context.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value);

async function read(answer, exact) {
  const text = await answer.text();
  if (!/[/+]json\b/.test(answer.headers.get("content-type") ?? "")) return null;
  try {
    return JSON.parse(text, exact ? faithful : undefined);
  } catch {
    return null;
  }
}

/** options: { signal } ends the call when a page closes; { login: true } leaves a 401 to the caller; { exact: true } keeps all digits of numbers, to be written again. */
export const api = {
  get: (path, options) => call("GET", path, options),
  post: (path, body, options) => call("POST", path, { ...options, body }),
  put: (path, body, options) => call("PUT", path, { ...options, body }),
  delete: (path, options) => call("DELETE", path, options),
};
