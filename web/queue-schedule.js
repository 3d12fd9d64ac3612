// The form of a schedule.

import { api, Problem } from "./api.js";
import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { field, form } from "./form.js";
import { dateTime } from "./format.js";
import { schedulePath } from "./queue-words.js";

const CATCH_UP = [["latest", "Fire once for the latest one"], ["skip", "Wait for the next one"], ["all", "Fire for each, up to 1,000"]];

/** schedule: the one that is changed, or none for a new one. done(answer): it is as the node has it now. */
export function scheduleDialog({ schedule = null, queue = "", done }) {
  const input = (name, label, hint, more = {}) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...more }) });
  const select = (name, label, hint, options, onchange) => field({ name, label, hint, control: h("select", { onchange }, options.map(([value, text]) => h("option", { value }, text))) });
  const fields = {
    name: input("name", "Name", "What it is known by.", { value: schedule?.name ?? "", readonly: Boolean(schedule) }),
    queue: input("queue", "Queue", "It is made if it is not there.", { value: schedule?.queue ?? queue }),
    partition: input("partition", "Partition", "Default if left out.", { value: schedule?.partition ?? "" }),
    kind: select("kind", "Fires", "", [["cron", "at the times of a cron line"], ["every", "every so many seconds"]], settle),
    cron: input("cron", "Cron line", "Minute, hour, day, month, weekday: 0 6 * * 1-5. With six fields the first are seconds. @hourly and the like work too.", { class: "mono", value: schedule?.cron ?? "" }),
    every: input("every", "Seconds", "From one time to the next.", { type: "number", min: 1, step: 1, value: schedule?.every ?? "" }),
    timezone: input("timezone", "Time zone", "Such as Europe/Berlin; UTC if left out.", { value: schedule?.timezone ?? "" }),
    catchUp: select("catchUp", "If times were missed", "Because no node was up.", CATCH_UP),
    payload: field({ name: "payload", label: "Payload", hint: "Any JSON. Every message has it.", control: h("textarea", { rows: 4, class: "mono", spellcheck: "false", value: schedule ? JSON.stringify(schedule.payload, null, 2) : "{}" }) }),
    priority: input("priority", "Priority", "0 to 9; higher goes first in its partition.", { type: "number", min: 0, max: 9, value: schedule?.priority ?? 0 }),
  };
  const paused = h("input", { type: "checkbox", checked: schedule?.paused ?? false });
  fields.kind.control.value = schedule?.every ? "every" : "cron";
  fields.catchUp.control.value = schedule?.catchUp ?? "latest";

  function settle() {
    const cron = fields.kind.control.value === "cron";
    fields.cron.element.hidden = !cron;
    fields.every.element.hidden = cron;
    fields.timezone.element.hidden = !cron;
  }

  function wish() {
    const text = (name) => fields[name].control.value.trim() || undefined;
    let payload;
    try {
      payload = JSON.parse(fields.payload.control.value);
    } catch (error) {
      throw new Problem({ title: "This is not JSON", detail: error.message, field: "payload" });
    }
    const cron = fields.kind.control.value === "cron";
    if (!text("name")) throw new Problem({ title: "Please give it a name", field: "name" });
    if (!text("queue")) throw new Problem({ title: "Please name a queue", field: "queue" });
    if (!text(cron ? "cron" : "every")) throw new Problem({ title: "Please say when", field: cron ? "cron" : "every" });
    const when = cron ? { cron: text("cron"), timezone: text("timezone") } : { every: Number(text("every")) };
    return { name: text("name"), queue: text("queue"), partition: text("partition"), payload, priority: Number(fields.priority.control.value) || 0, catchUp: fields.catchUp.control.value, paused: paused.checked, ...when };
  }

  const made = form({
    fields: Object.values(fields), submit: schedule ? "Save" : "Add", onCancel: () => dialog.close(),
    onSubmit: async () => {
      const body = wish();
      const answer = schedule ? await api.put(schedulePath(schedule.name), { ...body, version: schedule.version }) : await api.post("/api/v1/schedules", body);
      dialog.close();
      await done(answer);
    },
  });
  const pair = (...names) => h("div", { class: "halves" }, names.map((name) => fields[name].element));
  const next = schedule?.next?.length ? h("p", { class: "dim small" }, `As it is, it fires at ${schedule.next.map((time) => dateTime(time, true)).join(", ")}.`) : "";
  made.element.prepend(fields.name.element, pair("queue", "partition"), fields.kind.element, fields.cron.element, fields.every.element, pair("timezone", "catchUp"), next, fields.payload.element, pair("priority"), h("label", { class: "choice" }, paused, "Paused: it does not fire until somebody resumes it"));
  settle();
  const dialog = openDialog({ title: schedule ? `Change ${schedule.name}` : "New schedule", content: made.element });
  (schedule ? fields.queue : fields.name).control.focus();
}
