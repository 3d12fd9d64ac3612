// What happened to routes: as it comes, and what was written down before.

import { api } from "./api.js";
import { announce, h } from "./dom.js";
import { explainOf } from "./explain.js";
import { clock, dateTime, when } from "./format.js";
import { problemNotice } from "./notice.js";
import { KINDS, routeLink } from "./route-words.js";
import { withQuery } from "./router.js";

const STEP = 50;
const MOST = 1000;
const DAY = 86400000;

// The stream and the database know the same event by different numbers.
const keyOf = (one) => [one.at_ms, one.route, one.kind, one.upstream ?? "", one.status ?? ""].join(" ");

/** route: only its events; otherwise those of all. */
export function eventList({ route = "", signal }) {
  let items = new Map(); // by key, newest first
  let next = null;
  let turn = 0;
  let deep = false;
  const kind = h("select", { "aria-label": "Kind of event", onchange: () => load() }, h("option", { value: "" }, "All kinds"), Object.keys(KINDS).map((one) => h("option", { value: one }, one)));
  const list = h("ol", { class: "log events choices-made route-events is-empty", tabindex: "0", "aria-label": "Events, newest first", "data-empty": "Nothing has happened yet." });
  const trouble = h("div");
  const more = h("button", { type: "button", class: "quiet", onclick: () => load(true) }, "Show older events");
  more.hidden = true;

  function item(one) {
    const today = Date.now() - one.at_ms < DAY / 2;
    const about = [!route && one.route && h("a", { href: routeLink(one.route) }, one.route), one.upstream && h("span", { class: "mono" }, one.upstream), one.status && h("span", { class: `num status s${String(one.status)[0]}` }, one.status)].filter(Boolean);
    return h("li", { "data-level": KINDS[one.kind] ?? "info" },
      h("span", { class: "log-time num" }, when(one.at_ms, today ? clock(one.at_ms) : dateTime(one.at_ms).slice(5))),
      h("div", { class: "log-text" },
        h("p", null, h("strong", null, one.kind), about.map((part) => [" ", part])),
        h("p", { class: "dim" }, one.detail, one.count > 1 && ` (${one.count} times within a second)`, one.node && h("span", { class: "small" }, `, seen by ${one.node}`)),
        explainOf(one.explain)));
  }

  // keep: whoever reads further down keeps what is read in sight.
  function draw(ordered, keep = true) {
    const now = new Map(ordered.slice(0, MOST).map((one) => [keyOf(one), one]));
    const kept = new Map();
    const below = keep && list.scrollTop > 8 ? list.scrollHeight - list.scrollTop : null;
    let spot = list.firstChild;
    for (const [key, one] of now) {
      // What came live has its id only once it is written down.
      const known = items.get(key);
      const made = known && (known.one.explain || !one.explain) ? known : { one, element: item(one) };
      kept.set(key, made);
      if (made.element === spot) spot = spot.nextSibling;
      else list.insertBefore(made.element, spot);
    }
    for (const [key, { element }] of items) if (kept.get(key)?.element !== element) element.remove();
    items = kept;
    if (below !== null) list.scrollTop = list.scrollHeight - below;
    list.classList.toggle("is-empty", !kept.size);
    more.hidden = next === null || kept.size >= MOST;
  }

  const shown = () => [...items.values()].map(({ one }) => one);

  async function load(older = false) {
    const mine = (turn += 1);
    try {
      const answer = await api.get(withQuery("/api/v1/routes/events", { route, kind: kind.value, limit: STEP, before: older ? next : "" }), { signal });
      if (mine !== turn) return;
      trouble.replaceChildren();
      next = answer.next;
      deep = older;
      const newest = answer.events[0]?.at_ms ?? 0;
      // What came live and is not written down yet stays.
      const live = older ? [] : shown().filter((one) => one.number && one.at_ms > newest && (!kind.value || one.kind === kind.value));
      const held = more === document.activeElement;
      draw(older ? [...shown(), ...answer.events] : [...live, ...answer.events], !older);
      if (older) announce(`${answer.events.length} older events`);
      // The button that had the focus may be gone.
      if (held && more.hidden) list.focus();
    } catch (problem) {
      if (!problem.silent && mine === turn) trouble.replaceChildren(problemNotice(problem, () => load(older)));
    }
  }

  return {
    element: h("section", { class: "card stack tight" }, h("div", { class: "event-head" }, h("h2", null, "Events"), kind), h("p", { class: "dim small" }, "This node's as they come, those of others within seconds."), trouble, list, h("div", { class: "foot" }, more)),
    load,
    /** Loads anew unless that would take older events away from the reader. */
    renew: () => !deep && load(),
    /** Takes events of the stream, oldest first. */
    hear(events) {
      const fresh = events.filter((one) => (!route || one.route === route) && (!kind.value || one.kind === kind.value) && !items.has(keyOf(one)));
      if (fresh.length) draw([...fresh.reverse(), ...shown()]);
    },
  };
}
