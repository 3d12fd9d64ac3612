// Sending many dead letters back, at a pace: the form, and how those that run get on.

import { api, Problem } from "./api.js";
import { openDialog } from "./dialog.js";
import { h, setText } from "./dom.js";
import { explainCell } from "./explain.js";
import { field, form } from "./form.js";
import { dateTime, rate, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { buttonsCell, groupText, momentInput, repeat, timeCell, twoLines } from "./queue-words.js";
import { withQuery } from "./router.js";

const PATH = "/api/v1/dlq/redrives";
const LIMIT = 100;
const SHOWN = 20;
const COUNTED = 5;
const EVERY = 2;
const IDLE = 5; // while none runs, asked so much less often

/** filter: what is in the filters of the page, as a beginning. */
export function redriveDialog({ filter, said, done }) {
  const text = (name, label, hint, more = {}) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: filter[name] ?? "", ...more }) });
  const fields = {
    queue: text("queue", "Queue", "Whose dead letters go back."),
    consumerGroup: text("consumerGroup", "Group", "Only of this group."),
    partition: text("partition", "Partition", "Only of this partition."),
    error: text("error", "Error contains", "Only where the reason contains this."),
    rate: text("rate", "Rate", "So many a second at most; empty is as fast as it goes.", { type: "number", min: 1, inputmode: "numeric" }),
    target: text("target", "To another queue", "Empty: to the queue they came from."),
  };
  const times = ["from", "to"].map((name) => ({ name, ...momentInput(name, filter[name], () => {}) }));
  const moments = times.map((one) => field({ name: one.name, label: one.name === "from" ? "Given up from" : "Given up before", hint: "", control: one.input }));
  const all = [...Object.values(fields), ...moments];
  const made = form({
    fields: all, submit: "Start", onCancel: () => dialog.close(),
    onSubmit: async () => {
      const wish = Object.fromEntries(Object.values(fields).map(({ name, control }) => [name, control.value.trim() || undefined]));
      if (!wish.queue) throw new Problem({ title: "Please name a queue", field: "queue" });
      if (wish.rate) wish.rate = Number(wish.rate);
      for (const { name, value } of times) wish[name] = value() || undefined;
      await api.post("/api/v1/dlq/redrive", wish);
      dialog.close();
      said.say("The redrive has begun", "It goes on by itself, on any node, until all of them are moved or somebody stops it.");
      done();
    },
  });
  const pairs = [[fields.consumerGroup, fields.partition], moments, [fields.rate, fields.target]].map((pair) => h("div", { class: "halves" }, pair.map((one) => one.element)));
  made.element.prepend(fields.queue.element, pairs[0], fields.error.element, pairs[1], pairs[2]);
  const dialog = openDialog({ title: "Redrive dead letters", content: [h("p", { class: "dim" }, "They are pushed again with their transaction ids. What is given up again meanwhile is not moved in circles."), made.element] });
  fields.queue.control.focus();
}

/** Redrives of a queue, or of all. moved(): some letters were moved since it was asked before. */
export function redriveList({ queue, signal, can, said, moved }) {
  let before = null;
  let running = false;
  let idle = 0;
  const list = liveTable({
    label: "Redrives, newest first", key: (one) => one.id, empty: "None yet.",
    columns: [
      { title: "Queue", class: "free", make: () => twoLines(plain((one) => (one.target && one.target !== one.queue ? `${one.queue} → ${one.target}` : one.queue), "span", "cut"), (one) => filterText(one.filter)) },
      { title: "Explain", class: "free", make: () => explainCell() },
      { title: "Moved", class: "free", make: progress },
      { title: "State", class: "nowrap", make: () => twoLines(plain((one) => one.state), (one) => (one.rate ? `at most ${rate(one.rate)}` : "")) },
      { title: "Begun", class: "nowrap num", make: () => timeCell((one) => one.createdAt) },
      ...(can("admin") ? [{ title: "Actions", class: "last", make: () => buttonsCell([["Stop", stop, "danger", (one) => one.state === "running"]], (one) => `redrive ${one.id}`) }] : []),
    ],
  });
  const element = h("section", { class: "column redrives" }, h("h2", null, "Redrives"), list.element);
  element.hidden = true;

  async function stop({ id }) {
    if (await said.tries(() => api.delete(`${PATH}/${encodeURIComponent(id)}`), () => ["The redrive is stopped", "What was moved stays moved."])) await load();
  }

  async function load() {
    idle = 0;
    try {
      const { redrives } = await api.get(withQuery(PATH, { limit: LIMIT }), { signal });
      const own = redrives.filter((one) => !queue || one.queue === queue).slice(0, SHOWN);
      // How many there are in all is worked out only for the one that is asked for.
      const busy = own.filter((one) => one.state === "running").slice(0, COUNTED);
      const counted = new Map((await Promise.all(busy.map((one) => api.get(`${PATH}/${encodeURIComponent(one.id)}`, { signal })))).map((one) => [one.id, one]));
      const sum = own.reduce((all, one) => all + one.moved, 0);
      running = busy.length > 0;
      element.hidden = !own.length;
      list.set(own.map((one) => counted.get(one.id) ?? one));
      if (before !== null && sum !== before) moved();
      before = sum;
    } catch {
      // What is known stays; the list above says what is wrong.
    }
  }

  load();
  repeat(signal, EVERY, () => {
    idle += 1;
    return running || idle >= IDLE ? load() : null;
  });
  return { element, load };
}

const WORDS = { consumerGroup: ["group", groupText], partition: ["partition", String], error: ["error contains", String], from: ["from", dateTime], to: ["before", dateTime] };
const filterText = (filter) => Object.entries(WORDS).filter(([name]) => filter?.[name]).map(([name, [word, write]]) => `${word} ${write(filter[name])}`).join(", ");

/** How much of it is done. */
function progress() {
  const bar = h("i");
  const text = h("span", { class: "small num" });
  const track = h("div", { class: "share", role: "progressbar", "aria-label": "Moved", "aria-valuemin": 0, "aria-valuemax": 100 }, bar);
  return {
    element: [text, track],
    set({ moved, total, state }) {
      const part = total ? Math.min(1, moved / total) : state === "done" ? 1 : 0;
      setText(text, total === undefined || total === null ? `${whole(moved)} moved` : `${whole(moved)} of ${whole(total)}`);
      bar.style.width = `${part * 100}%`;
      track.setAttribute("aria-valuenow", Math.round(part * 100));
    },
  };
}
