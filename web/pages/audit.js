// Audit: who changed what on this node, newest first.

import { api } from "../api.js";
import { announce, h } from "../dom.js";
import { dateTime, when } from "../format.js";
import { pageHead, problemNotice } from "../notice.js";
import { table } from "../table.js";

export const page = { path: "/audit", title: "Audit", order: 95, needs: "admin", icon: "M7 3h10v18H7zM10 8h4M10 12h4M10 16h2" };

const PAGE = 100;

export function mount(root, { signal }) {
  let next = null;
  const older = h("button", { type: "button", onclick: loadOlder }, "Show older entries");
  const foot = h("div", { class: "foot" }, older);
  older.hidden = true;
  const list = table({
    label: "Audit entries, newest first",
    empty: "Nothing has been changed yet. Every change to keys and settings is noted here.",
    columns: [
      { title: "Time", class: "nowrap", cell: (entry) => when(entry.at, dateTime(entry.at, true)) },
      { title: "Who", cell: (entry) => [entry.actor, h("div", { class: "dim mono small" }, entry.address)] },
      { title: "Did", cell: (entry) => h("code", null, entry.action) },
      { title: "To", class: "free", cell: (entry) => h("span", { class: "mono small" }, entry.target) },
      { title: "Detail", class: "free", cell: (entry) => entry.detail || "–" },
    ],
  });
  root.append(pageHead("Audit", "Who changed what on this node, newest first.", h("button", { type: "button", onclick: load }, "Refresh")), list.element, foot);

  function take(answer) {
    next = answer.next;
    older.hidden = next === null;
  }

  async function load() {
    try {
      const answer = await api.get(`/api/v1/audit?limit=${PAGE}`, { signal });
      list.set(answer.entries);
      take(answer);
    } catch (problem) {
      if (!problem.silent) list.say(problemNotice(problem, load));
    }
  }

  async function loadOlder() {
    foot.replaceChildren(older);
    try {
      const answer = await api.get(`/api/v1/audit?limit=${PAGE}&before=${encodeURIComponent(next)}`, { signal });
      list.append(answer.entries);
      take(answer);
      announce(`${answer.entries.length} older entries`);
      if (next === null) foot.append(h("p", { class: "dim" }, "That was the first entry."));
    } catch (problem) {
      if (!problem.silent) foot.append(problemNotice(problem));
    }
  }

  load();
  return () => {};
}
