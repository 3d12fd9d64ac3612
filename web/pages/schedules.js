// Schedules: messages that are pushed by the clock.

import { api } from "../api.js";
import { confirmDialog } from "../dialog.js";
import { h } from "../dom.js";
import { dateTime, duration, relative, when, whole } from "../format.js";
import { pageHead } from "../notice.js";
import { facts, openDrawer, payloadCard } from "../queue-drawer.js";
import { pagedRows } from "../queue-pages.js";
import { scheduleDialog } from "../queue-schedule.js";
import { maintenance } from "../queue-switches.js";
import { buttonsCell, exactly, linkCell, queueLink, repeat, sayings, schedulePath, settled, timeCell, twoLines } from "../queue-words.js";
import { emptyWith } from "../steps.js";

export const page = { "path": "/schedules", "title": "Schedules", "order": 54, "needs": "read", "icon": "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3.5 2" };

const EVERY = 3;
const CATCH_UP = { latest: "only the latest one missed is made up for", skip: "what was missed is not made up for", all: "all that were missed are made up for" };
const ruleOf = (one) => (one.cron ? one.cron : `every ${duration(one.every)}`);

export function mount(root, { signal, params, noteParams, can }) {
  const said = sayings();
  const { banner } = maintenance({ signal, can, said });
  const queue = h("input", { type: "search", placeholder: "Queue", "aria-label": "Only of this queue", value: params.get("queue") ?? "", oninput: settled(() => {
    noteParams({ queue: queue.value.trim() });
    list.load();
  }) });
  const buttons = () => buttonsCell([["Edit", edit], ["Fire now", fire], ["Pause", (one) => change(one, "pause"), "", (one) => !one.paused], ["Resume", (one) => change(one, "resume"), "", (one) => one.paused], ["Delete", remove, "danger"]], (one) => one.name);
  const list = pagedRows({
    path: "/api/v1/schedules", rows: (answer) => answer.schedules, query: () => ({ queue: queue.value.trim() }), place: (one) => one.name, signal,
    label: "Schedules, by name", boxClass: "schedules-box", key: (one) => one.name, open: show,
    empty: () => (queue.value ? "No schedule pushes to it." : emptyWith("No schedule yet. One pushes a message by the clock: at times of a cron line, or every so many seconds.", `skep schedule add morning --queue reports --cron '0 9 * * 1-5' --payload '{"report": "daily"}'`)),
    columns: [
      { title: "Schedule", class: "free", make: () => twoLines(opener(), (one) => `${ruleOf(one)}${one.timezone && one.timezone !== "UTC" ? `, ${one.timezone}` : ""}`) },
      { title: "Queue", class: "free", make: () => twoLines(linkCell((one) => one.queue, (one) => queueLink(one.queue)), (one) => one.partition) },
      { title: "Next", class: "free", make: nextCell },
      { title: "Last fired", class: "free", make: () => twoLines(timeCell((one) => one.lastAt), (one) => `${whole(one.fired)} times in all`) },
      ...(can("admin") ? [{ title: "Actions", class: "last schedule-actions", make: buttons }] : []),
    ],
  });

  function opener() {
    let now = null;
    const element = h("button", { type: "button", class: "plain cut strong", onclick: () => show(now) });
    return { element, set: (row) => { now = row; element.textContent = row.name; } };
  }

  const next = (one) => (one.paused ? null : one.nextAt);
  function nextCell() {
    const time = timeCell(next);
    const pill = h("span", { class: "pill warn" }, "paused");
    return twoLines({ element: [time.element, pill], set: (one) => { time.set(one); time.element.hidden = one.paused; pill.hidden = !one.paused; } }, (one) => (next(one) ? dateTime(one.nextAt, true).slice(5) : ""));
  }

  function show(one) {
    openDrawer(one.name, [
      h("h3", null, "Next times"), timesOf(one), payloadCard(one.payload), h("h3", null, "Schedule"),
      facts([
        ["Rule", ruleOf(one)], ["Time zone", one.timezone], ["If it was missed", CATCH_UP[one.catchUp] ?? one.catchUp], ["Queue", h("a", { href: queueLink(one.queue) }, one.queue)], ["Partition", one.partition], ["Priority", one.priority ? String(one.priority) : ""],
        ["Fired", `${whole(one.fired)} times`], ["Last", one.lastAt && exactly(one.lastAt)], ["Last message", one.lastMessageId && h("code", null, one.lastMessageId)], ["Changed", exactly(one.updatedAt)],
      ]),
    ]);
  }

  function done(told) {
    return (answer) => {
      said.say(told(answer), answer?.next?.length ? `It fires next at ${answer.next.map((time) => dateTime(time, true)).join(", ")}.` : "");
      return list.load();
    };
  }

  async function fire(one) {
    if (await said.tries(() => api.post(schedulePath(one.name, "/fire")), () => [`${one.name} was fired`, `Its message is in ${one.queue}.`])) await list.renew();
  }

  async function change(one, verb) {
    if (await said.tries(() => api.post(schedulePath(one.name, `/${verb}`)), () => `${one.name} is ${verb === "pause" ? "paused" : "on again"}`)) await list.renew();
  }

  async function remove(one) {
    const yes = await confirmDialog({ title: `Delete ${one.name}?`, text: "It fires no more. Messages that it has pushed stay. This cannot be undone.", action: "Delete schedule" });
    if (yes && (await said.tries(() => api.delete(schedulePath(one.name)), () => `${one.name} is deleted`))) list.drop(new Set([one.name]));
  }

  const edit = (one) => scheduleDialog({ schedule: one, done: done((answer) => `${answer.name} is changed`) });
  const add = h("button", { type: "button", class: "primary", onclick: () => scheduleDialog({ queue: queue.value.trim(), done: done((answer) => `${answer.name} is there`) }) }, "New schedule");
  root.append(pageHead("Schedules", "Messages that are pushed by the clock.", ...(can("admin") ? [add] : [])), banner, said.element, h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, queue), list.element);
  list.load();
  repeat(signal, EVERY, list.renew);
}

/** The next times, as the node works them out. */
function timesOf({ next = [], paused }) {
  if (paused) return h("p", { class: "dim" }, "It is paused.");
  if (!next.length) return h("p", { class: "dim" }, "It does not fire any more.");
  return h("ol", { class: "times" }, next.map((time) => h("li", { class: "num" }, when(time, dateTime(time, true)), h("span", { class: "dim small" }, ` ${relative(time)}`))));
}
