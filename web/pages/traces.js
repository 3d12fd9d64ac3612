// Traces: what consumers have noted about messages, by name, across queues.

import { api } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { notice, pageHead, problemNotice } from "../notice.js";
import { pagedRows } from "../queue-pages.js";
import { maintenance } from "../queue-switches.js";
import { lanesOf, timeLine } from "../queue-traces.js";
import { linkCell, sayings, timeCell, traceLink } from "../queue-words.js";
import { link, withQuery } from "../router.js";
import { emptyWith } from "../steps.js";

export const page = { "path": "/traces", "title": "Traces", "order": 56, "needs": "read", "icon": "M5 5h.01M5 5c6 0 2 14 8 14M13 19h.01M19 10h.01M13 19c4 0 2-9 6-9" };

const TRACE = `curl ${location.origin}/api/v1/traces -H 'content-type: application/json' -d '{"partitionId": "…", "transactionId": "…", "traceNames": ["order-17"], "data": {"text": "invoice sent"}}'`;
const PAGE = 100;
const MOST = 1000; // notes of one trace that are drawn

export function mount(root, context) {
  const name = context.params.get("name");
  const said = sayings();
  const { banner } = maintenance({ ...context, said });
  if (name) mountOne(root, { name, banner, said, ...context });
  else mountNames(root, { banner, said, ...context });
}

function mountNames(root, { signal, banner, said }) {
  const input = h("input", { type: "search", placeholder: "Name of a trace", "aria-label": "Name of a trace" });
  const find = h("form", { class: "toolbar", onsubmit: (event) => {
    event.preventDefault();
    if (input.value.trim()) location.hash = traceLink(input.value.trim());
  } }, input, h("button", { type: "submit" }, "Open"));
  const list = pagedRows({
    path: "/api/v1/traces/names", rows: (answer) => answer.names, limit: PAGE, signal,
    label: "Names of traces", boxClass: "traces-box", key: (one) => one.name, open: (one) => { location.hash = traceLink(one.name); },
    empty: () => emptyWith("No consumer has noted anything yet. A note belongs to a message that somebody has popped, and a name ties the notes of many queues together:", TRACE),
    columns: [
      { title: "Name", class: "free", make: () => linkCell((one) => one.name, (one) => traceLink(one.name)) },
      { title: "Notes", class: "num", text: (one) => (one.count >= 1000 ? "1k+" : count(one.count)) },
      { title: "Last", class: "nowrap num", make: () => timeCell((one) => one.lastAt) },
    ],
  });
  root.append(pageHead("Traces", "What consumers have noted about messages, by name.", h("button", { type: "button", onclick: list.load }, "Refresh")), banner, said.element, find, list.element);
  list.load();
}

function mountOne(root, { name, signal, banner, said }) {
  let traces = [];
  let before = null;
  document.title = `${name} · Traces · Skep`;
  const place = h("div", { class: "column" }, h("span", { class: "ghost" }));
  const older = h("button", { type: "button", onclick: () => load(true) }, "Show older notes");
  older.hidden = true;
  root.append(h("p", { class: "small" }, h("a", { href: link("/traces") }, "All traces")), pageHead(name, "Every note with this name, oldest first.", h("button", { type: "button", onclick: () => load() }, "Refresh")), banner, said.element, place, h("div", { class: "foot" }, older));

  async function load(further = false) {
    try {
      const answer = await api.get(withQuery(`/api/v1/traces/by-name/${encodeURIComponent(name)}`, { limit: PAGE, before: further ? before : "" }), { signal });
      traces = further ? [...traces, ...answer.traces] : answer.traces;
      before = answer.next;
      older.hidden = !before || traces.length >= MOST;
      place.replaceChildren(...(traces.length ? [lanesOf(traces), h("section", { class: "card" }, timeLine(traces, { across: true }))] : [notice("info", "Nothing has this name", "Notes are kept for a while and then forgotten.")]));
      said.mended();
    } catch (problem) {
      if (!problem.silent && !traces.length) place.replaceChildren(problemNotice(problem, () => load()));
      else said.fail(problem, () => load(further));
    }
  }

  load();
}
