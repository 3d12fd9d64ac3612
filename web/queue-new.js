// The form for a new queue. Its options are set on its own page.

import { api, Problem } from "./api.js";
import { openDialog } from "./dialog.js";
import { announce, h } from "./dom.js";
import { field, form } from "./form.js";
import { queueLink } from "./queue-words.js";

export function newQueueDialog() {
  const text = (name, label, hint) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", spellcheck: "false" }) });
  const queue = text("queue", "Name", "At most 255 bytes. A dot separates namespace and task, if these are left out.");
  const namespace = text("namespace", "Namespace", "");
  const task = text("task", "Task", "Consumers can pop by namespace and task instead of by name.");
  const halves = h("div", { class: "halves" }, namespace.element, task.element);
  const made = form({
    fields: [queue, namespace, task], submit: "Make queue", onCancel: () => dialog.close(),
    onSubmit: async () => {
      const name = queue.control.value.trim();
      if (!name) throw new Problem({ title: "Please give the queue a name", field: "queue" });
      const wish = { queue: name, namespace: namespace.control.value.trim() || undefined, task: task.control.value.trim() || undefined };
      await api.post("/api/v1/configure", wish);
      dialog.close();
      announce(`The queue ${name} is there`);
      location.hash = queueLink(name, "options");
    },
  });
  queue.element.after(halves);
  const dialog = openDialog({ title: "New queue", content: made.element });
  queue.control.focus();
}
