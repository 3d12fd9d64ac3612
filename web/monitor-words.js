// What the words of monitors and servers mean, for all parts of their page.

import { h } from "./dom.js";
import { duration } from "./format.js";
import { link } from "./router.js";

export const serverLink = (id, more = {}) => link("/monitors", { server: id, ...more });
export const monitorLink = (id) => link("/monitors", { monitor: id });
export const path = (kind, id, rest = "") => `/api/v1/${kind}/${encodeURIComponent(id)}${rest}`;

/** What a monitor is to a server. */
export const STATUSES = {
  active: "Its results count",
  testing: "It measures, and is on trial for this server",
  candidate: "It may be chosen; it measures seldom",
  paused: "It is shut out until a re-check finds the cause gone",
};

/** What should become of it. */
export const STATES = {
  in: ["good", "It may be kept and promoted"],
  out: ["warn", "It should leave, gradually"],
  block: ["bad", "It must leave at once"],
  pending: ["", "It stays what it is"],
};

/** What the network as a whole thinks of a monitor. */
export const GLOBAL = {
  pending: ["warn", "It waits to be approved, and measures nothing"],
  testing: ["", "Approved, and on trial everywhere"],
  active: ["good", "Fully approved"],
  paused: ["bad", "Stopped for now"],
  deleted: ["bad", "It is leaving its servers, and is gone then"],
};

/** What is violated. */
export const KINDS = {
  network: "the server's own network",
  account: "the server's own account",
  limit: "too many of its account",
  diversity: "a better one of its network is here",
};

/** What a rule does. */
export const RULES = {
  1: "blocked", 2: "gradual removal", 1.5: "more active than wanted", 3: "promotion to active", 5: "candidate to testing",
  2.5: "more in testing than wanted", 6: "testing was empty", recheck: "what paused it is gone", import: "imported", api: "by hand",
};

export const pill = (text, look = "", title = null) => h("span", { class: `pill ${look}`, title }, text);
export const statePill = (state) => (state ? pill(state, ...(STATES[state] ?? [])) : "–");

/** What a monitor counts as, and that its account is disabled where that is why. */
export function globalPill({ status, effective_status: counts = status }) {
  return [pill(counts, ...(GLOBAL[counts] ?? [])), counts !== status && h("div", { class: "dim small" }, "its account is disabled")];
}

/** Whether a server has what it should. */
export function serverState({ paused, below_target: below, reviewed_at: reviewed }) {
  if (paused) return ["paused", ""];
  if (below) return ["below target", "bad"];
  return reviewed === null || reviewed === undefined ? ["not reviewed yet", "warn"] : ["ok", "good"];
}

/** NTP time.example:123 */
export const probeText = ({ kind, target }) => `${kind.toUpperCase()} ${target}`;
/** How long ago, without the word. */
export const since = (ms) => (ms ? duration(Math.max(0, Math.round((Date.now() - ms) / 1000))) : "–");
export const fixed = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");
/** A change from one status to another. */
export const step = ({ from, to }) => h("span", { class: "nowrap" }, from, " → ", h("strong", null, to));
/** A rule with its number and its meaning. */
export const ruleText = (rule) => (RULES[rule] ? `${/^[\d.]+$/.test(rule) ? `rule ${rule}: ` : ""}${RULES[rule]}` : String(rule));
