// The monitors of a server by status, each with its numbers, why it is what it is, and what would change that.

import { h, setText } from "./dom.js";
import { dateTime, duration, millis, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { fixed, KINDS, monitorLink, since, statePill, STATUSES } from "./monitor-words.js";

const POOLS = [
  ["active", "Active", "Nobody is active: nothing that is measured counts yet."],
  ["testing", "Testing", "Nobody is in testing; the best candidates come at the next review."],
  ["paused", "Paused", ""],
  ["candidate", "Candidates", "There are no candidates. Every approved monitor of the same address family becomes one."],
];
// So many candidates are drawn at first.
const FIRST = 20;
// So many samples of a monitor are drawn.
const STRIP = 24;
const HEALTH = { healthy: "good", unmeasured: "", unhealthy: "bad", silent: "bad" };

function pair(text, more, look = "dim small") {
  const parts = [plain(text), plain(more, "div", look)];
  return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
}

function nameCell() {
  const anchor = h("a", null, h("strong"));
  const below = h("div", { class: "dim small" });
  return {
    element: [anchor, below],
    set({ monitor, account, since: from }) {
      setText(anchor.firstChild, monitor);
      if (anchor.dataset.name !== monitor) anchor.href = monitorLink((anchor.dataset.name = monitor));
      setText(below, [account, `for ${since(from)}`].filter(Boolean).join(", "));
      below.title = `since ${dateTime(from, true)}`;
    },
  };
}

// What should become of it, how it does, and what it violates.
function standingCell() {
  const chips = h("div", { class: "chips" });
  const violates = h("div", { class: "bad small" });
  let before = "";
  return {
    element: [chips, violates],
    set({ state, health, violation: found }) {
      setText(violates, found ? [KINDS[found.kind] ?? found.kind, found.peer ?? found.account, found.since && `for ${since(found.since)}`].filter(Boolean).join(", ") : "");
      if (before === (before = `${state} ${health}`)) return;
      chips.replaceChildren(statePill(state), h("span", { class: `pill ${HEALTH[health] ?? ""}` }, health ?? "–"));
    },
  };
}

// The last samples, oldest first: a mark each, red where something was wrong.
function stripCell(samples) {
  const element = h("div", { class: "strip small-strip", role: "img" });
  let before = "";
  return {
    element,
    set({ monitor }) {
      const own = samples(monitor);
      const key = own.map((one) => one.at).join();
      if (before === key && element.ariaLabel) return;
      before = key;
      const bad = own.filter((one) => one.error || one.step < 0).length;
      element.setAttribute("aria-label", own.length ? `Of the last ${own.length} samples ${bad || "none"} were bad` : "No sample lately");
      element.replaceChildren(...(own.length ? own.map((one) => h("i", { class: one.error || one.step < 0 ? "bad" : "ok", title: `${dateTime(one.at, true)}: ${one.error ?? `${millis(one.rtt_ms)}, step ${fixed(one.step, 2)}`}` })) : [h("span", { class: "dim small" }, "none lately")]));
    },
  };
}

function whyCell(explain) {
  let now = null;
  const reason = h("div");
  const change = h("div", { class: "dim small" });
  const button = h("button", { type: "button", class: "plain small", onclick: () => explain(now) }, "Explain");
  return {
    element: [reason, change, button],
    set({ monitor, reason: why, would_change: would, pause_reason: paused, status, becomes }) {
      now = monitor;
      setText(reason, `${becomes && becomes !== status ? `Becomes ${becomes}: ` : ""}${why ?? paused ?? "–"}`);
      setText(change, would ? `What would change that: ${would}` : "");
      button.setAttribute("aria-label", `Explain ${monitor}`);
    },
  };
}

/** explain(monitor): somebody wants to know everything about it. */
export function assignmentTables({ explain }) {
  let all = [];
  let every = false;
  let byMonitor = new Map();
  const samples = (monitor) => byMonitor.get(monitor) ?? [];
  const parts = POOLS.map(([status, title, empty]) => {
    const tally = h("span", { class: "dim small" });
    const table = liveTable({
      label: `${title}, best first`, key: (one) => one.monitor, empty,
      rowClass: (one) => (one.health === "unhealthy" || one.health === "silent" ? "failing" : ""),
      columns: [
        { title: "Rank", class: "num", text: (one) => whole(one.rank) },
        { title: "Monitor", class: "short", make: nameCell },
        { title: "State", class: "standing-column", make: standingCell },
        { title: "Measured", class: "num", make: () => pair((one) => (one.count ? `${millis(one.rtt_ms)}, step ${fixed(one.step, 2)}` : "nothing yet"), (one) => (one.count ? `priority ${whole(one.priority)}, score ${fixed(one.score, 1)}` : "")) },
        { title: "Samples", class: "num", make: () => {
          const [count, strip] = [pair((one) => whole(one.count), (one) => (one.last_sample_at ? `${duration(Math.max(0, Math.round((Date.now() - one.last_sample_at) / 1000)))} ago` : "none yet")), stripCell(samples)];
          return { element: [count.element, strip.element], set: (row) => { count.set(row); strip.set(row); } };
        } },
        { title: "Why, and what would change that", class: "free", make: () => whyCell(explain) },
      ],
    });
    const more = h("button", { type: "button", onclick: () => {
      every = true;
      draw();
      // The button that had the focus is gone.
      table.element.focus({ preventScroll: true });
    } });
    const section = h("section", { class: "column pool-of-monitors", "data-status": status }, h("div", { class: "row" }, h("h2", null, title), tally), h("p", { class: "dim small" }, `${STATUSES[status]}.`), table.element, h("div", { class: "foot" }, more));
    return { status, tally, table, more, section };
  });

  function draw() {
    for (const { status, tally, table, more, section } of parts) {
      const own = all.filter((one) => one.status === status);
      const cut = status === "candidate" && !every && own.length > FIRST;
      section.hidden = status === "paused" && !own.length;
      setText(tally, whole(own.length));
      more.hidden = !cut;
      setText(more, `Show all ${whole(own.length)} candidates`);
      table.set(cut ? own.slice(0, FIRST) : own);
    }
  }

  return {
    element: h("div", { class: "column" }, parts.map((one) => one.section)),
    set(assignments) {
      all = assignments;
      draw();
    },
    /** Newest first. */
    samples(list) {
      byMonitor = new Map();
      for (const one of list) {
        const own = byMonitor.get(one.monitor) ?? [];
        if (own.length < STRIP) byMonitor.set(one.monitor, [one, ...own]);
      }
      draw();
    },
  };
}
