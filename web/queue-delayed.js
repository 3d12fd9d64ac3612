// Messages that are not due yet.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { h } from "./dom.js";
import { plain } from "./live-table.js";
import { facts, openDrawer, payloadCard } from "./queue-drawer.js";
import { pagedRows } from "./queue-pages.js";
import { buttonsCell, exactly, oneLine, payloadOf, queuePath, repeat, timeCell, twoLines } from "./queue-words.js";

const EVERY = 5;

export function delayedTab({ queue, signal, can, said, reload }) {
  const list = pagedRows({
    path: queuePath(queue, "/delayed"), rows: (answer) => answer.messages, signal,
    label: "Delayed messages, the next first", boxClass: "delayed-box", key: (one) => one.id, open: show,
    empty: "Nothing is delayed. What is pushed with a delay lies here until it is due.",
    columns: [
      { title: "Due", class: "nowrap num time", make: () => timeCell((one) => one.delayUntil) },
      { title: "Transaction", class: "free", make: () => twoLines(plain((one) => one.transactionId, "span", "mono cut"), (one) => `${one.partition}${one.priority ? `, priority ${one.priority}` : ""}`) },
      { title: "Payload", class: "free payload", make: () => plain((one) => oneLine(payloadOf(one)), "span", "mono small cut") },
      { title: "Actions", class: "last", make: () => buttonsCell([["Look", show], ...(can("admin") ? [["Delete", remove, "danger"]] : [])], (one) => one.transactionId) },
    ],
  });

  async function remove(message) {
    const yes = await confirmDialog({ title: `Delete ${message.transactionId}?`, text: "It never becomes available. This cannot be undone.", action: "Delete message" });
    if (!yes || !(await said.tries(() => api.delete(queuePath(queue, `/delayed/${encodeURIComponent(message.id)}`)), () => `${message.transactionId} is deleted`))) return;
    list.drop(new Set([message.id]));
    await reload();
  }

  function show(one) {
    openDrawer(one.transactionId, [
      payloadCard(payloadOf(one)), h("h3", null, "Message"),
      facts([["Due", exactly(one.delayUntil)], ["Partition", one.partition], ["Priority", one.priority ? String(one.priority) : ""], ["By", one.producerSub], ["Message id", h("code", null, one.messageId ?? one.id)]]),
    ]);
  }

  list.load();
  repeat(signal, EVERY, list.renew);
  return { element: list.element };
}
