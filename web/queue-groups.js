// The groups of a queue: how far behind they are, and letting them read elsewhere.

import { api, Problem } from "./api.js";
import { confirmDialog, openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { field, form } from "./form.js";
import { count, whole } from "./format.js";
import { plain } from "./live-table.js";
import { pagedRows } from "./queue-pages.js";
import { buttonsCell, groupPath, groupText, lagText, momentInput, timeCell } from "./queue-words.js";
import { many } from "./session-words.js";

const BEGINNING = "1970-01-01T00:00:00Z";

export function groupsTab({ queue, signal, can, said, reload, watch }) {
  const list = pagedRows({
    signal, label: "Groups", boxClass: "groups-box", key: (one) => one.name,
    empty: "No consumer has come yet. A group is made by its first pop.",
    columns: [
      { title: "Group", class: "free", make: () => plain((one) => groupText(one.name), "strong", "cut") },
      { title: "Pending", class: "num", text: (one) => count(one.pending) },
      { title: "Lag", class: "num", text: (one) => lagText(one.lagSeconds) },
      { title: "Oldest", class: "nowrap num", make: () => timeCell((one) => one.oldestAt) },
      { title: "Leased", class: "num", text: (one) => whole(one.leasedPartitions) },
      { title: "Waiting", class: "num", text: (one) => (one.waitingPartitions === undefined ? "–" : `${whole(one.waitingPartitions)}${one.waitingPartitionsMore ? "+" : ""}`) },
      { title: "Since", class: "nowrap num", make: () => timeCell((one) => one.createdAt) },
      ...(can("admin") ? [{ title: "Actions", class: "last", make: () => buttonsCell([["Seek", seek], ["Delete", forget, "danger"]], (one) => groupText(one.name)) }] : []),
    ],
  });

  function seek({ name }) {
    const where = field({ name: "where", label: "Go on", hint: "What the group has leased is taken from it.", control: h("select", { onchange: settle }, h("option", { value: "time" }, "with what was pushed at a time or later"), h("option", { value: "begin" }, "at the beginning of all that is kept"), h("option", { value: "end" }, "after the last message there is")) });
    const moment = momentInput("Time", null, () => {});
    const time = field({ name: "timestamp", label: "Time", hint: "On this machine's clock.", control: moment.input });
    function settle() {
      time.element.hidden = where.control.value !== "time";
    }
    const dialog = openDialog({
      title: `Where ${groupText(name)} goes on`, content: form({
        fields: [where, time], submit: "Seek", onCancel: () => dialog.close(),
        onSubmit: async () => {
          const to = where.control.value;
          if (to === "time" && !moment.value()) throw new Problem({ title: "Please choose a time", field: "timestamp" });
          const wish = to === "end" ? { toEnd: true } : { timestamp: to === "begin" ? BEGINNING : moment.value() };
          const answer = await api.post(groupPath(name, queue, "/seek"), wish);
          dialog.close();
          said.say(`${groupText(name)} goes on elsewhere`, `${many(answer.partitionsUpdated, "partition is", "partitions are")} read from another place now.`);
          await reload();
        },
      }).element,
    });
    where.control.focus();
  }

  async function forget({ name }) {
    const yes = await confirmDialog({ title: `Delete ${groupText(name)}?`, text: "Where it has read to is forgotten, and what it has leased is taken from it. Its next pop begins anew. This cannot be undone.", action: "Delete group" });
    if (yes && (await said.tries(() => api.delete(groupPath(name, queue)), () => `The group ${groupText(name)} is deleted`))) await reload();
  }

  watch(({ consumerGroups = [] }) => list.set(consumerGroups));
  return { element: list.element };
}
