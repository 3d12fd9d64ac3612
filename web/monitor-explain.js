// Why one monitor is to one server what it is, in full.

import { h } from "./dom.js";
import { dateTime, millis, when, whole } from "./format.js";
import { fixed, KINDS, ruleText, statePill, STATUSES } from "./monitor-words.js";

/** The parts of an explanation, as the node gives it. */
export function explained({ status, becomes, since, state, cause, rank, of, measured, violations = [], rule, reason, would_change: would, would_flip: flips = [], budget }) {
  const facts = {
    "It is": [h("strong", null, status), h("span", { class: "dim" }, ` ${STATUSES[status] ?? ""}`)],
    Since: since && when(since, dateTime(since, true)),
    Becomes: becomes !== status && [h("strong", null, becomes), rule && h("span", { class: "dim" }, ` ${ruleText(rule)}`)],
    Because: reason,
    State: [statePill(state), ` ${cause}`],
    Rank: `${whole(rank)} of ${whole(of)}`,
    Measured: measured.count ? `${measured.health}: ${millis(measured.rtt_ms)}, mean step ${fixed(measured.step, 2)}, priority ${whole(measured.priority)}, ${whole(measured.count)} samples` : `${measured.health}: no sample yet`,
    Violates: violations.length > 0 && h("ul", null, violations.map((one) => h("li", null, `${KINDS[one.kind] ?? one.kind}: ${one.reason}`, one.grandfathered && h("span", { class: "dim" }, " It was within the limits once, so it leaves gradually.")))),
    Budget: `${whole(budget)} changes of each sort at a review`,
    "Would change it": would,
  };
  return [
    h("dl", { class: "facts" }, Object.entries(facts).filter(([, value]) => value).map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value)))),
    flips.length > 0 && h("h3", null, "It would be otherwise if"),
    flips.length > 0 && h("ul", { class: "flips stack" }, flips.map((one) => h("li", null, one.if, h("span", { class: "dim" }, ` → ${one.becomes}`)))),
  ].filter(Boolean);
}
