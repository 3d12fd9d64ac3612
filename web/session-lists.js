// Sessions: those that are open, and the line of those that wait.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, setText } from "./dom.js";
import { explainCell } from "./explain.js";
import { duration, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { problemNotice } from "./notice.js";
import { withQuery } from "./router.js";
import { workerLink } from "./session-workers.js";

const PATH = "/api/v1/sessions";
const STEP = 50;
const MOST = 1000; // of one question
const ENDING = {
  operator: "an operator ends it", "worker-removed": "its worker was removed", "worker-lost": "its worker has not been heard of", "worker-down": "its worker's program crashed",
  "worker-restarted": "its worker's program was started anew", "drain-limit": "its worker has waited for it long enough",
};

const TITLES = { open: "Open sessions", waiting: "The line" };
const ABOUT = { open: "Carried by all gateways, the oldest first.", waiting: "Who has waited longest is first; the line is fair between keys." };
const SAY = { open: "No session is open.", waiting: "Nobody waits: every session has found its worker." };

/** state: open or waiting. worker: only those on it. changed(): one was ended. */
export function sessionList({ state, worker = null, signal, can, changed }) {
  let limit = STEP;
  let turn = 0;
  const heading = h("h2", null, TITLES[state]);
  const tally = h("span", { class: "dim small num" });
  const trouble = h("div");
  const waiting = state === "waiting";
  const more = h("button", { type: "button", class: "quiet", onclick: () => {
    limit = Math.min(MOST, limit + 4 * STEP);
    load();
  } }, "Show more");
  more.hidden = true;
  const list = liveTable({
    label: waiting ? "Sessions that wait, the longest first" : "Open sessions, the oldest first", key: (one) => one.id, empty: worker ? "It carries no session now." : SAY[state],
    rowClass: (one) => (one.state === "ending" ? "faded" : ""),
    columns: [
      ...(waiting ? [{ title: "Place", class: "place num", text: (one) => String(one.place) }] : []),
      { title: "Session", class: "free", make: idCell },
      ...(waiting || worker ? [] : [{ title: "Worker", class: "short", make: workerCell }]),
      { title: waiting ? "Waits for" : "Open for", class: "nowrap num", text: (one) => duration(Math.floor(one.age_ms / 1000)) },
      ...(can("admin") ? [{ title: "Actions", class: "last", make: endCell }] : []),
    ],
  });
  const box = h("div", { class: "card scroll-box session-box" }, list.element, h("div", { class: "foot" }, more));

  function idCell() {
    const parts = [plain((one) => one.id, "span", "mono"), plain((one) => [one.kind, `by ${one.node}`, one.key && `key ${one.key}`].filter(Boolean).join(", "), "div", "dim small"), plain((one) => (one.ending ? ENDING[one.ending] ?? one.ending : ""), "div", "bad small"), explainCell()];
    return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
  }

  function workerCell() {
    const element = h("a");
    return {
      element,
      set({ worker: name }) {
        setText(element, name ?? "–");
        if (name && element.dataset.name !== name) element.href = workerLink((element.dataset.name = name));
      },
    };
  }

  function endCell() {
    let now = null;
    const button = h("button", { type: "button", class: "quiet danger", onclick: () => end(now) }, "End");
    return {
      element: button,
      set(row) {
        if (now?.id !== row.id) button.setAttribute("aria-label", `End ${row.id}`);
        now = row;
      },
    };
  }

  async function end({ id, worker: name }) {
    const text = name ? `Its client is cut off from ${name} at once.` : "It loses its place in the line, and its client is told so.";
    if (!(await confirmDialog({ title: `End ${id}?`, text, action: "End session" }))) return;
    try {
      await api.delete(`${PATH}/${encodeURIComponent(id)}`);
      announce(`${id} ended`);
      trouble.replaceChildren();
    } catch (problem) {
      if (problem.silent) return;
      // It has ended by itself meanwhile: what was wanted is so.
      if (problem.status !== 404) trouble.replaceChildren(problemNotice(problem));
    }
    await changed();
  }

  async function load() {
    const mine = (turn += 1);
    try {
      const { sessions, next } = await api.get(withQuery(PATH, { state, worker, limit }), { signal });
      if (mine !== turn) return;
      sessions.sort((a, b) => b.age_ms - a.age_ms || (a.id < b.id ? -1 : 1));
      sessions.forEach((one, index) => { one.place = index + 1; });
      list.set(sessions);
      more.hidden = next === null || limit >= MOST;
      setText(tally, next === null ? whole(sessions.length) : `${whole(sessions.length)} and more`);
    } catch (problem) {
      if (!problem.silent && mine === turn) list.say(problemNotice(problem, load));
    }
  }

  return {
    load,
    element: h("section", { class: "column sessions", "data-state": state },
      h("div", null, h("div", { class: "row" }, heading, tally), h("p", { class: "dim small" }, worker ? "The oldest first." : ABOUT[state])), trouble, box),
  };
}
