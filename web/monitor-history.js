// What monitors became to servers, when and why.

import { h } from "./dom.js";
import { explainOf } from "./explain.js";
import { dateTime, when } from "./format.js";
import { monitorLink, ruleText, serverLink, step } from "./monitor-words.js";
import { pagedTable } from "./paged.js";

/** other: "monitor" on the page of a server, "server" on that of a monitor. */
export function changeTable({ path, other, signal }) {
  const href = other === "monitor" ? monitorLink : serverLink;
  return pagedTable({
    path, rows: "changes", limit: 20, entries: "older changes", signal,
    label: "Changes, newest first", empty: "Nothing has changed yet.",
    columns: [
      { title: "Time", class: "nowrap", cell: (one) => when(one.at, dateTime(one.at, true)) },
      { title: other === "monitor" ? "Monitor" : "Server", class: "short", cell: (one) => h("a", { href: href(one[other]) }, one[other]) },
      { title: "Change", class: "nowrap", cell: step },
      { title: "Why", class: "free", cell: (one) => [one.reason, h("div", { class: "dim small" }, ruleText(one.rule)), explainOf(one.explain)] },
    ],
  });
}
