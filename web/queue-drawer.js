// One message, looked at closely: its payload, where it stands with each group, its traces, and what can be done with it.

import { api } from "./api.js";
import { copyButton } from "./copy.js";
import { confirmDialog, openDialog } from "./dialog.js";
import { announce, h, inline } from "./dom.js";
import { explainOf } from "./explain.js";
import { field, form } from "./form.js";
import { bytes } from "./format.js";
import { problemNotice } from "./notice.js";
import { timeLine } from "./queue-traces.js";
import { exactly, groupText, messagePath, payloadOf, queueLink, statusPill, tracesPath } from "./queue-words.js";

const SHOWN = 200000; // letters of a payload that are drawn

/** A dialog at the edge of the window, for one thing of a list. */
export function openDrawer(title, content) {
  const dialog = openDialog({ title, content: [h("button", { type: "button", class: "quiet drawer-close", onclick: () => dialog.close() }, "Close"), ...content] });
  dialog.element.classList.add("drawer");
  return dialog;
}

/** Facts in two columns; those that are missing are left out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** A payload as people read it. */
export function payloadCard(payload) {
  const text = JSON.stringify(payload, null, 2) ?? "null";
  const shown = text.length > SHOWN ? `${text.slice(0, SHOWN)}\n…` : text;
  return h("section", { class: "stack" },
    h("div", { class: "event-head" }, h("h3", null, `Payload, ${bytes(new Blob([text]).size)}`), copyButton(() => text)),
    h("pre", { class: "payload-text", tabindex: "0" }, shown),
    text.length > SHOWN && h("p", { class: "dim small" }, "It is longer than is shown; copying takes all of it."));
}

/** changed(): something was done to the message. closed(): it is not looked at any more. */
export function openMessage({ message, can, said, changed, closed = () => {} }) {
  const ending = new AbortController();
  const trouble = h("div");
  const about = h("div", { class: "stack" });
  const traces = h("div", { class: "stack" });
  const buttons = h("div", { class: "row" });
  const dialog = openDrawer(message.transactionId, [trouble, buttons, about, traces]);
  dialog.element.addEventListener("close", () => {
    ending.abort();
    closed();
  });

  function show(one) {
    const groups = one.consumerGroups ?? [];
    about.replaceChildren(
      payloadCard(payloadOf(one)),
      h("h3", null, "Standing"),
      groups.length ? facts(groups.map((group) => [groupText(group.name), statusPill(group.status)])) : h("p", null, statusPill(one.status), h("span", { class: "dim small" }, " No group has come for it yet.")),
      h("h3", null, "Message"),
      facts([
        ["Queue", h("a", { href: queueLink(one.queue) }, one.queue)], ["Partition", one.partition], ["Priority", one.priority ? String(one.priority) : ""], ["Pushed", exactly(one.createdAt)], ["By", one.producerSub],
        ["Message id", h("code", null, one.id)], ["Partition id", h("code", null, one.partitionId)], ["Trace id", one.traceId && h("code", null, one.traceId)],
        ["What would change it", one.wouldChange && inline(one.wouldChange)], ["Explain", explainOf(one.explain)],
      ]));
  }

  async function load() {
    try {
      // Numbers keep all their digits.
      const one = await api.get(messagePath(message), { signal: ending.signal, exact: true });
      show(one);
      const found = one.traces === 0 ? [] : (await api.get(`${tracesPath(message)}?limit=200`, { signal: ending.signal })).traces;
      traces.replaceChildren(h("h3", null, "Traces"), found.length ? timeLine(found, { since: one.createdAt }) : h("p", { class: "dim" }, "No consumer has noted anything about it."));
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
  }

  async function act(work, told) {
    try {
      await work();
      said.say(told);
      dialog.close();
      await changed();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem));
      announce(problem.title);
    }
  }

  function button(label, onclick, look = "") {
    return h("button", { type: "button", class: look, onclick }, label);
  }

  if (can("admin")) {
    buttons.append(
      button("Retry", () => act(() => api.post(messagePath(message, "/retry")), `${message.transactionId} comes again`)),
      button("To dead letters", () => asideDialog(message, (wish) => act(() => api.post(messagePath(message, "/dlq"), wish), `${message.transactionId} is a dead letter now`))),
      button("Delete", async () => {
        const yes = await confirmDialog({ title: `Delete ${message.transactionId}?`, text: "No consumer gets it any more. This cannot be undone.", action: "Delete message" });
        if (yes) await act(() => api.delete(messagePath(message)), `${message.transactionId} is deleted`);
      }, "danger"));
  }
  // From an address nothing but its place is known.
  if (message.id) show(message);
  load();
}

function asideDialog(message, go) {
  const groups = message.consumerGroups ?? [];
  const group = field({ name: "consumerGroup", label: "Group", hint: "Whose dead letter it becomes.", control: h("select", null, h("option", { value: "" }, "Those who name none"), groups.filter(({ name }) => groupText(name) === name).map(({ name }) => h("option", { value: name }, name))) });
  const error = field({ name: "error", label: "Reason", hint: "It is kept with the dead letter.", control: h("input", { type: "text", autocomplete: "off" }) });
  const dialog = openDialog({
    title: "To the dead letters", content: form({
      fields: [group, error], submit: "Set aside", onCancel: () => dialog.close(),
      onSubmit: async () => {
        dialog.close();
        await go({ consumerGroup: group.control.value || undefined, error: error.control.value.trim() || undefined });
      },
    }).element,
  });
}

