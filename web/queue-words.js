// What all pages of queues share: addresses, words, and small pieces that every one of them needs.

import { openDialog } from "./dialog.js";
import { announce, h, setText } from "./dom.js";
import { field, form } from "./form.js";
import { dateTime, relative, when, whole } from "./format.js";
import { notice, problemNotice } from "./notice.js";
import { link } from "./router.js";

const API = "/api/v1";
const part = encodeURIComponent;
export const resourcePath = (queue, rest = "") => `${API}/resources/queues/${part(queue)}${rest}`;
export const queuePath = (queue, rest = "") => `${API}/queues/${part(queue)}${rest}`;
export const groupPath = (group, queue, rest = "") => `${API}/consumer-groups/${part(group)}/queues/${part(queue)}${rest}`;
export const messagePath = ({ partitionId, transactionId }, rest = "") => `${API}/messages/${part(partitionId)}/${part(transactionId)}${rest}`;
export const tracesPath = ({ partitionId, transactionId }) => `${API}/traces/${part(partitionId)}/${part(transactionId)}`;
export const letterPath = (id, rest = "") => `${API}/dlq/${part(id)}${rest}`;
export const schedulePath = (name, rest = "") => `${API}/schedules/${part(name)}${rest}`;

export const queueLink = (queue, tab = "", more = {}) => link("/queues", { queue, tab, ...more });
export const traceLink = (name) => link("/traces", { name });

/** Consumers that name no group are one together, and this is its name. */
const NAMELESS = "__QUEUE_MODE__";
export const groupText = (name) => (name === NAMELESS ? "(those who name none)" : name);

/** Where a message stands, and what that means. */
export const STATUSES = {
  pending: "no consumer has it",
  processing: "a consumer works on it",
  completed: "it is settled",
  dead: "it was given up",
};
const LOOKS = { pending: "", waiting: "", processing: "warn", leased: "warn", completed: "good", settled: "good", dead: "bad", dead_letter: "bad" };

/** A status as a coloured word. */
export const statusPill = (status, more = "") => h("span", { class: `pill ${LOOKS[status] ?? ""}`, title: more || STATUSES[status] }, more ? `${status}: ${more}` : status);

export const payloadOf = (message) => ("payload" in message ? message.payload : message.data);

/** JSON on one line, cut where nobody reads on. */
export function oneLine(value, most = 300) {
  const text = JSON.stringify(value) ?? "–";
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** A time as the row of a table has it: how long ago, and when exactly on hover. */
export const agoOf = (time) => (time ? when(time, relative(time)) : "–");
export const exactly = (time) => (time ? when(time, dateTime(time, true)) : "–");

/** A cell whose time is drawn anew only if its words change. */
export function timeCell(pick, write = relative) {
  const element = h("span");
  return {
    element,
    set(row) {
      const time = pick(row);
      const text = time ? write(time) : "–";
      if (element.textContent !== text || element.dataset.time !== String(time)) element.replaceChildren(time ? when(time, text) : text);
      element.dataset.time = String(time);
    },
  };
}

/** A cell with a main line and a dim one below. */
export function twoLines(main, more) {
  const below = h("div", { class: "dim small cut" });
  return {
    element: [main.element, below],
    set(row) {
      main.set(row);
      setText(below, more(row) || "\u00a0");
    },
  };
}

/** A cell that is a link. */
export function linkCell(text, href) {
  const element = h("a", { class: "cut" });
  return {
    element,
    set(row) {
      setText(element, text(row));
      const to = href(row);
      if (element.getAttribute("href") !== to) element.setAttribute("href", to);
    },
  };
}

/** A cell with buttons: [[label, act(row), class, shown(row)]]. `named(row)` ends their names for screen readers. */
export function buttonsCell(buttons, named) {
  let now = null;
  const made = buttons.map(([label, act, look = ""]) => h("button", { type: "button", class: `quiet ${look}`, onclick: () => act(now) }, label));
  return {
    element: h("div", { class: "actions" }, made),
    set(row) {
      now = row;
      buttons.forEach(([label, , , shown], index) => {
        made[index].hidden = shown ? !shown(row) : false;
        made[index].setAttribute("aria-label", `${label} ${named(row)}`);
      });
    },
  };
}

/** Runs `work` every so many seconds while somebody looks, until the signal ends it. */
export function repeat(signal, seconds, work) {
  let timer = 0;
  const again = () => {
    timer = setTimeout(async () => {
      if (!document.hidden) await work();
      if (!signal.aborted) again();
    }, seconds * 1000);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  again();
}

/** Calls `work` when the typing has stopped. */
export function settled(work, millis = 300) {
  let waiting = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(work, millis);
  };
}

/** A place for what was done and what went wrong; both are also read out. */
export function sayings() {
  let broken = false;
  const element = h("div", { class: "sayings" });
  const clear = () => {
    broken = false;
    element.replaceChildren();
  };
  const dismiss = () => h("button", { type: "button", class: "quiet", onclick: clear }, "Dismiss");
  return {
    element,
    clear,
    say(title, detail = "") {
      broken = false;
      element.replaceChildren(notice("info", title, detail, dismiss()));
      announce(`${title}. ${detail}`);
    },
    /** With `retry` it is about a question that is asked again and again, and goes when that is answered. */
    fail(problem, retry) {
      if (problem.silent) return;
      broken = Boolean(retry);
      element.replaceChildren(problemNotice(problem, retry));
    },
    mended() {
      if (broken) clear();
    },
    /** Does something and says how it went. Did it work? */
    async tries(work, told) {
      try {
        const answer = await work();
        this.say(...[told(answer)].flat());
        return true;
      } catch (problem) {
        this.fail(problem);
        return false;
      }
    },
  };
}

/** Asks for the name of what goes away for good, letter by letter. */
export function typedDialog({ title, text, name, action, onSubmit }) {
  const typed = field({ name: "typed", label: `Type ${name} to confirm`, hint: "", control: h("input", { type: "text", autocomplete: "off", spellcheck: "false", oninput: settle }) });
  const made = form({
    fields: [typed], submit: action, onCancel: () => dialog.close(),
    onSubmit: async () => {
      await onSubmit();
      dialog.close();
    },
  });
  made.button.className = "danger";
  function settle() {
    made.button.setAttribute("aria-disabled", String(typed.control.value !== name));
  }
  settle();
  const dialog = openDialog({ title, content: [h("p", null, text), made.element] });
  typed.control.focus();
}

/** A filter for a moment; its value is a time of the API. */
export function momentInput(label, value, onchange) {
  const local = (iso) => {
    const date = new Date(iso);
    return Number.isNaN(date.getTime()) ? "" : new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  };
  const input = h("input", { type: "datetime-local", step: 1, "aria-label": label, value: value ? local(value) : "", onchange });
  return { input, element: h("label", { class: "inline small" }, label, input), value: () => (input.value ? new Date(input.value).toISOString() : "") };
}

/** Filters that few need, out of the way until one of them says something. */
export function moreFilters(...elements) {
  const set = elements.some((one) => (one.matches("input") ? one : one.querySelector("input"))?.value);
  return h("details", { class: "more-filters", open: set }, h("summary", null, "More filters"), h("div", { class: "toolbar filters" }, elements));
}

/** The filters of a toolbar as an object, without those that say nothing. */
export const chosenOf = (inputs) => Object.fromEntries(Object.entries(inputs).map(([name, one]) => [name, typeof one.value === "function" ? one.value() : one.value.trim()]));

export const lagText = (seconds) => (seconds > 0 ? relative(Date.now() - seconds * 1000).replace(" ago", "") : "–");
export const manyMessages = (count) => `${whole(count)} ${count === 1 ? "message" : "messages"}`;
