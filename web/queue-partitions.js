// The partitions of a queue, however many there are: by the beginning of their name.

import { h } from "./dom.js";
import { count, relative } from "./format.js";
import { pagedRows } from "./queue-pages.js";
import { agoOf, groupText, linkCell, queueLink, resourcePath, settled, timeCell } from "./queue-words.js";

const GROUPS = 3;

export function partitionsTab({ queue, signal, params, note }) {
  const prefix = h("input", { type: "search", placeholder: "Name begins with", "aria-label": "Only partitions whose name begins with", value: params.get("prefix") ?? "", oninput: settled(() => {
    note({ prefix: prefix.value });
    list.load();
  }) });
  const list = pagedRows({
    path: resourcePath(queue, "/partitions"), rows: (answer) => answer.partitions, query: () => ({ prefix: prefix.value }), signal,
    label: "Partitions", boxClass: "partitions-box", key: (one) => one.id,
    empty: () => (prefix.value ? "No partition begins so." : "Nothing was pushed yet."),
    columns: [
      { title: "Partition", class: "free", make: nameCell },
      { title: "Kept", class: "num", text: (one) => count(one.messages) },
      { title: "Pushed", means: "Pushed in all", class: "num", text: (one) => count(one.pushed) },
      { title: "Last push", class: "nowrap num", make: () => timeCell((one) => one.lastPushAt) },
      { title: "Groups", class: "free", make: groupsCell },
    ],
  });

  function nameCell() {
    const link = linkCell((one) => one.name, (one) => queueLink(queue, "messages", { partition: one.name }));
    const level = h("span", { class: "pill" });
    return {
      element: h("div", { class: "named" }, link.element, level),
      set(one) {
        link.set(one);
        level.hidden = !one.priority;
        level.textContent = `priority ${one.priority}`;
      },
    };
  }

  list.load();
  return { element: [h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, prefix, h("button", { type: "button", onclick: list.load }, "Refresh")), list.element] };
}

/** How far each group is in it, and who works on it now. */
function groupsCell() {
  const element = h("div", { class: "chips" });
  let drawn = "";
  return {
    element,
    set({ groups = [] }) {
      const shape = JSON.stringify(groups);
      if (drawn === (drawn = shape)) return;
      element.replaceChildren(...groups.slice(0, GROUPS).map((one) => h("span", { class: `pill ${one.leasedUntil ? "warn" : one.pending ? "" : "good"}`, title: one.leasedUntil ? `leased, the lease ends ${relative(one.leasedUntil)}` : null },
        `${groupText(one.name)}: ${one.pending ? `${count(one.pending)} pending` : "done"}${one.leasedUntil ? ", leased" : ""}`)), groups.length > GROUPS ? h("span", { class: "dim small" }, `+${groups.length - GROUPS}`) : groups.length ? "" : agoOf(null));
    },
  };
}
