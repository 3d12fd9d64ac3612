// Why something was decided: the one form in which every page tells it. What was decided, by whom and when, by which rule and
// on which numbers, who else was considered and why not, and what would change it.

import { h, inline } from "./dom.js";
import { explainOf } from "./explain.js";
import { dateTime, when, whole } from "./format.js";

// Groups of at most so many are unfolded from the start, and so many names are listed.
const UNFOLDED = 8;
const NAMES = 200;

const words = (name) => name.replaceAll("_", " ");
const written = (value) => (typeof value === "number" ? String(Number(value.toFixed(3))) : String(value));

/**
 * what: the decision in a sentence, as text or elements. by: who decided. at: when, in milliseconds; now if it is only asked.
 * rule: its stable name. because: the rule in words. numbers: { name: value } that it looked at.
 * rejected: [{ who, rule }], ruled: what their rules mean, linkOf(who): where each is seen. rest: how many more there are.
 * change: what would change it, [text] or [{ if, becomes }]. facts: { title: content } beside these. explain: its id for `skep explain`.
 */
export function reasonOf({ what, by = null, at = null, rule = null, because = null, numbers = {}, rejected = [], ruled = {}, linkOf = null, rest = 0, change = [], facts = {}, explain = null }) {
  const pairs = Object.entries(numbers);
  const rows = {
    "Decided by": by,
    When: at ? when(at, dateTime(at, true)) : by && "just now, for this question; nothing was done",
    Rule: rule && [because ? `${because} ` : "", h("code", { class: "dim" }, rule)],
    ...facts,
    Numbers: pairs.length > 0 && h("span", { class: "reason-numbers" }, pairs.map(([name, value]) => h("span", null, h("span", { class: "dim" }, words(name)), " ", h("strong", { class: "num" }, written(value))))),
  };
  const shown = Object.entries(rows).filter(([, content]) => content !== null && content !== undefined && content !== false && content !== "");
  return h("div", { class: "reason stack" },
    what && h("p", { class: "reason-what" }, what),
    shown.length > 0 && h("dl", { class: "facts" }, shown.map(([title, content]) => h("div", null, h("dt", null, title), h("dd", null, content)))),
    others({ rejected, ruled, linkOf, rest }),
    changes(change),
    explain && h("p", { class: "reason-command" }, explainOf(explain)));
}

// Those with the same reason together, the few first: they say most.
function others({ rejected, ruled, linkOf, rest }) {
  if (!rejected.length && !rest) return null;
  const groups = new Map();
  for (const { who, rule } of rejected) groups.set(rule, [...(groups.get(rule) ?? []), who]);
  const name = (who) => (linkOf ? h("a", { class: "chip", href: linkOf(who) }, who) : h("span", { class: "chip" }, who));
  const group = ([rule, names]) => h("details", { class: "why-not", open: names.length <= UNFOLDED },
    h("summary", null, h("span", null, h("strong", { class: "num" }, whole(names.length)), ` ${rule} `, h("span", { class: "dim small" }, ruled[rule] ?? ""))),
    h("p", { class: "chips" }, names.slice(0, NAMES).map(name), names.length > NAMES && h("span", { class: "dim small" }, `and ${whole(names.length - NAMES)} more`)));
  return [h("h3", null, "Why not the others"), [...groups].sort((a, b) => a[1].length - b[1].length).map(group), rest > 0 && h("p", { class: "dim small" }, `And ${whole(rest)} more.`)];
}

function changes(list) {
  const all = [list].flat().filter(Boolean);
  if (!all.length) return null;
  return [h("h3", null, "What would change it"), h("ul", { class: "flips stack" }, all.map((one) => h("li", null, inline(one.if ?? one), one.becomes && h("span", { class: "dim" }, ` → ${one.becomes}`))))];
}

/** The same, folded, for lists of decisions. */
export function foldedReason(parts, label = "Why") {
  const details = h("details", { class: "why", ontoggle: () => {
    // Built when it is first opened: a list has many.
    if (details.open && details.childElementCount === 1) details.append(reasonOf(parts()));
  } }, h("summary", null, label));
  return details;
}

/** A reason as the node writes it on one line, `rule: name value, name value; not who (rule), who (rule)`, taken apart. */
export function readReason(text) {
  const [head, not = ""] = text.split("; not ", 2);
  const [rule, values = ""] = head.split(/: (.*)/s);
  const numbers = {};
  for (const pair of values.split(", ").filter(Boolean)) {
    const [name, value] = pair.split(/ (.*)/s);
    numbers[name] = value !== undefined && value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value ?? "";
  }
  const rejected = [...not.matchAll(/(.+?) \(([^)]*)\)(?:, |$)/g)].map(([, who, why]) => ({ who, rule: why }));
  return { rule, numbers, rejected };
}
