// The options of a queue, each with what it does; and the two things that cannot be undone.

import { api } from "./api.js";
import { announce, h } from "./dom.js";
import { field, form } from "./form.js";
import { queuePath, resourcePath, typedDialog } from "./queue-words.js";
import { link } from "./router.js";
import { many } from "./session-words.js";

// [name, label, unit, what it does]. A unit of null is a switch, "text" a text.
const GROUPS = [
  ["Handing out", [
    ["leaseTime", "Lease", "seconds", "How long a consumer may work on what it got before others get it."],
    ["priority", "Priority", "", "Higher is served first, where a pop names no queue."],
    ["delayedProcessing", "Delay", "seconds", "A message is handed out so long after its push at the earliest."],
    ["windowBuffer", "Quiet time", "seconds", "A partition is handed out when nothing was pushed to it for so long."],
    ["ttl", "Time to live", "seconds", "A message is not handed out later than this after its push. Shown as 3600 while it was never set, and then there is no end."],
    ["maxWaitTimeSeconds", "Longest wait", "seconds", "The same for a message that nobody took in that time; 0 is none."],
  ]],
  ["Failures", [
    ["retryLimit", "Retries", "", "So many failures bring a message back; the next one makes it a dead letter."],
    ["retryDelay", "First wait", "milliseconds", "The wait after the first failure; doubled with each."],
    ["retryDelayMax", "Longest wait between", "milliseconds", "No wait after a failure is longer."],
    ["deadLetterQueue", "Dead letter queue", null, "Kept and shown for clients that set it; dead letters are always kept."],
    ["dlqAfterMaxRetries", "Dead after the last retry", null, "Kept and shown for clients that set it."],
  ]],
  ["Limits", [
    ["maxSize", "Most that may wait", "messages", "Pushes beyond are refused; 0 is any number."],
    ["maxInFlight", "Most at work", "messages", "What a group may have been handed and not settled; 0 is any number."],
    ["rateLimit", "Rate", "messages", "What a group may be handed in a period; 0 is any number."],
    ["ratePeriodSeconds", "Period of the rate", "seconds", ""],
    ["keyMaxInFlight", "Most at work for a key", "messages", "The same for each key; 0 is any number."],
    ["keyRateLimit", "Rate for a key", "messages", "What a group may be handed of one key in a period; 0 is any number."],
    ["keyRatePeriodSeconds", "Period of a key's rate", "seconds", ""],
    ["limitKeySeparator", "Key separator", "text", "A key is what stands before the first of these in a partition's name; the whole name if this is empty."],
  ]],
  ["Keeping", [
    ["retentionEnabled", "Delete by age", null, "Whether messages are deleted for their age at all."],
    ["retentionSeconds", "Kept for", "seconds", "Deleted after this time, consumed or not; 0 is never."],
    ["completedRetentionSeconds", "Kept when settled", "seconds", "Deleted after this time if every group has settled them; 0 is never."],
    ["dedupWindowSeconds", "Known again for", "seconds", "A transaction id that is pushed again in this time is a duplicate."],
    ["encryptionEnabled", "Encrypt payloads", null, "Holds for what is pushed from now on; needs a key in the node's settings."],
  ]],
];

export function optionsTab({ queue, can, said, reload, watch }) {
  let known = null;
  const may = can("admin");
  const parts = new Map();
  for (const [, options] of GROUPS) options.forEach(make);

  function make([name, label, unit, hint]) {
    const control = unit === null
      ? h("input", { type: "checkbox", disabled: !may })
      : unit === "text" ? h("input", { type: "text", autocomplete: "off", maxlength: 16, disabled: !may }) : h("input", { type: "number", inputmode: "numeric", step: 1, min: name === "priority" ? null : 0, disabled: !may });
    // The node names a flaw by its path in the body.
    const one = field({ name: `options.${name}`, label: unit && unit !== "text" ? `${label} (${unit})` : label, hint, control });
    one.element.classList.toggle("switch", unit === null);
    parts.set(name, { ...one, unit });
  }

  const read = ({ control, unit }) => (unit === null ? control.checked : unit === "text" ? control.value : control.value === "" ? null : Number(control.value));
  const write = ({ control, unit }, value) => {
    if (unit === null) control.checked = Boolean(value);
    else control.value = String(value ?? "");
  };

  // What somebody is about to change stays; the rest follows the queue.
  function show({ options }) {
    for (const [name, one] of parts) if (!known || read(one) === known[name]) write(one, options[name]);
    known = options;
  }

  const made = form({
    fields: [...parts.values()], submit: "Save",
    onSubmit: async () => {
      const changed = Object.fromEntries([...parts].map(([name, one]) => [name, read(one)]).filter(([name, value]) => value !== known[name]));
      if (!Object.keys(changed).length) return said.say("Nothing is changed");
      const answer = await api.post("/api/v1/configure", { queue, options: changed });
      known = null;
      show(answer);
      said.say(`${many(Object.keys(changed).length, "option")} saved`, "All nodes go by it at once.");
      await reload();
    },
  });
  made.element.prepend(...GROUPS.map(([title, options]) => h("fieldset", { class: "card option-group" }, h("legend", { class: "unseen" }, title), h("h2", { "aria-hidden": "true" }, title),
    h("div", { class: "halves" }, options.map(([name]) => parts.get(name).element)))));
  if (!may) made.button.hidden = true;

  const clear = () => typedDialog({
    title: `Clear ${queue}`, name: queue, action: "Clear queue",
    text: "Everything that was pushed before now is gone at once, for every group. Dead letters, options and groups stay. This cannot be undone.",
    onSubmit: async () => {
      await api.delete(queuePath(queue, "/clear"));
      said.say(`${queue} is cleared`);
      await reload();
    },
  });
  const remove = () => typedDialog({
    title: `Delete ${queue}`, name: queue, action: "Delete queue",
    text: "The queue goes with all its messages, dead letters, groups and options. This cannot be undone.",
    onSubmit: async () => {
      await api.delete(resourcePath(queue));
      announce(`The queue ${queue} is deleted`);
      location.hash = link("/queues");
    },
  });
  const danger = may && h("section", { class: "card stack danger-zone" }, h("h2", null, "What cannot be undone"),
    h("div", { class: "row" }, h("button", { type: "button", class: "danger", onclick: clear }, "Clear queue"), h("span", { class: "dim small" }, "Removes its messages; everything else stays.")),
    h("div", { class: "row" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete queue"), h("span", { class: "dim small" }, "Removes the queue with everything in it.")));

  watch(show);
  return { element: [made.element, danger].filter(Boolean) };
}
