// Why one monitor is to one server what it is, in full.

import { h } from "./dom.js";
import { dateTime, millis, when, whole } from "./format.js";
import { reasonOf } from "./reason.js";
import { fixed, KINDS, ruleText, statePill, STATUSES } from "./monitor-words.js";

/** The parts of an explanation, as the node gives it. */
export function explained({ status, becomes, since, state, cause, rank, of, measured, violations = [], rule, reason, would_change: would, would_flip: flips = [], budget, explain }) {
  const changes = becomes !== status;
  const facts = {
    Since: since && when(since, dateTime(since, true)),
    Because: reason,
    State: [statePill(state), ` ${cause}`],
    Rank: `${whole(rank)} of ${whole(of)}`,
    Measured: measured.count ? `${measured.health}: ${millis(measured.rtt_ms)}, mean step ${fixed(measured.step, 2)}, priority ${whole(measured.priority)}, ${whole(measured.count)} samples` : `${measured.health}: no sample yet`,
    Violates: violations.length > 0 && h("ul", null, violations.map((one) => h("li", null, `${KINDS[one.kind] ?? one.kind}: ${one.reason}`, one.grandfathered && h("span", { class: "dim" }, " It was within the limits once, so it leaves gradually.")))),
    Budget: `${whole(budget)} changes of each sort at a review`,
  };
  return [reasonOf({
    what: ["It is ", h("strong", null, status), STATUSES[status] ? `: ${STATUSES[status].toLowerCase()}.` : ".", changes && [" A review now would make it ", h("strong", null, becomes), "."]],
    by: "a review of the server, made for this question", rule: changes ? rule : null, because: changes && rule ? `${ruleText(rule)},` : null,
    facts, change: [would, ...flips], explain,
  })];
}
