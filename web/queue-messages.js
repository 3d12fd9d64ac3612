// The messages of a queue, newest first, with filters and a search in their fields.

import { h } from "./dom.js";
import { clock, dateTime, whole } from "./format.js";
import { plain } from "./live-table.js";
import { notice } from "./notice.js";
import { openMessage } from "./queue-drawer.js";
import { pagedRows } from "./queue-pages.js";
import { chosenOf, groupText, momentInput, moreFilters, oneLine, payloadOf, repeat, settled, STATUSES, statusPill, timeCell, twoLines } from "./queue-words.js";
import { addParams } from "./router.js";

const LIMIT = 50;
const EVERY = 5;
const TODAY = 43200000;
const shortly = (time) => (Date.now() - new Date(time) < TODAY ? clock(time) : dateTime(time).slice(5));

export function messagesTab({ queue, signal, params, note, can, said, reload, watch }) {
  const text = (name, placeholder, label) => h("input", { type: "search", placeholder, "aria-label": label, value: params.get(name) ?? "", oninput: later });
  const select = (name, label, options) => {
    const made = h("select", { "aria-label": label, onchange: filter }, options.map(([value, words]) => h("option", { value }, words)));
    made.value = params.get(name) ?? "";
    if (made.selectedIndex < 0) made.selectedIndex = 0;
    return made;
  };
  const later = settled(filter);
  const partition = text("partition", "Partition", "Only of this partition");
  const status = select("status", "Only of this status", [["", "Any status"], ...Object.keys(STATUSES).slice(0, 3).map((one) => [one, one])]);
  const wanted = params.get("consumerGroup");
  const group = select("consumerGroup", "As this group sees them", [["", "All groups"], ...(wanted ? [[wanted, groupText(wanted)]] : [])]);
  const from = momentInput("From", params.get("from"), filter);
  const to = momentInput("To", params.get("to"), filter);
  const path = text("field", "Field, such as customer.id", "Only where this field of the payload …");
  const how = h("select", { "aria-label": "How the field is compared", onchange: filter }, h("option", { value: "equals" }, "equals"), h("option", { value: "contains" }, "contains"));
  how.value = params.has("contains") ? "contains" : "equals";
  const value = h("input", { type: "search", placeholder: "Value", "aria-label": "… has this value", value: params.get(how.value) ?? "", oninput: later });
  const early = h("div");
  let looked = 0;

  function chosen() {
    const all = chosenOf({ partition, status, consumerGroup: group, from, to });
    const searched = path.value.trim() && value.value ? { field: path.value.trim(), [how.value]: value.value } : {};
    return { ...all, ...searched };
  }

  const list = pagedRows({
    path: "/api/v1/messages", rows: (answer) => answer.messages, query: () => ({ queue, ...chosen() }), limit: LIMIT, signal,
    label: "Messages, newest first", boxClass: "messages-box", key: (one) => one.id, open: show,
    empty: () => (Object.values(chosen()).some(Boolean) ? "No message matches." : "The queue is empty."),
    onAnswer(answer, further) {
      looked = (further ? looked : 0) + (answer.scanned ?? answer.messages.length);
      // A search looks at so many at a time; whoever wants to know goes on.
      const short = answer.next && answer.messages.length < LIMIT;
      early.replaceChildren(...(short ? [notice("info", "There may be more", `${whole(looked)} messages were looked at so far. Go on with “Show more”, or narrow the time.`)] : []));
    },
    columns: [
      { title: "Pushed", means: "Pushed at", class: "nowrap num time", make: () => timeCell((one) => one.createdAt, shortly) },
      { title: "Transaction", class: "free", make: () => twoLines(opener(), (one) => `${one.partition}${one.priority ? `, priority ${one.priority}` : ""}`) },
      { title: "Standing", class: "standing-column", make: standing },
      { title: "Payload", class: "free payload", make: () => plain((one) => oneLine(payloadOf(one)), "span", "mono small cut") },
    ],
  });

  function opener() {
    let now = null;
    const element = h("button", { type: "button", class: "plain cut mono", onclick: () => show(now) });
    return {
      element,
      set(row) {
        if (now?.id !== row.id) element.textContent = row.transactionId;
        now = row;
      },
    };
  }

  function show(message) {
    addParams({ message: `${message.partitionId}/${message.transactionId}` });
    openMessage({ message, can, said, changed: () => Promise.all([list.load(), reload()]), closed: () => { if (!signal.aborted) addParams({ message: "" }); } });
  }

  function filter() {
    note(chosen());
    list.load();
  }

  // Groups come and go; the one that is chosen stays.
  watch(({ consumerGroups = [] }) => {
    const known = new Set([...group.options].map((option) => option.value));
    group.append(...consumerGroups.filter(({ name }) => !known.has(name)).slice(0, 200).map(({ name }) => h("option", { value: name }, groupText(name))));
  });

  list.load();
  const [, partitionId, transactionId] = params.get("message")?.match(/^([^/]+)\/(.*)$/s) ?? [];
  if (partitionId) show({ partitionId, transactionId });
  // What makes the node look at many messages is done again only if somebody wants it.
  repeat(signal, EVERY, () => (status.value || (path.value && value.value) ? null : list.renew()));
  return {
    element: [
      h("div", { class: "toolbar filters", role: "group", "aria-label": "What to show" }, partition, status, group),
      moreFilters(path, how, value, from.element, to.element),
      early, list.element,
    ],
  };
}

/** A message stands differently with each group: a mark for each status, with who sees it so. */
function standing() {
  const element = h("div", { class: "chips" });
  let drawn = "";
  return {
    element,
    set({ status, consumerGroups: groups = [] }) {
      const shape = JSON.stringify([status, groups]);
      if (drawn === (drawn = shape)) return;
      const by = new Map();
      for (const one of groups) by.set(one.status, [...(by.get(one.status) ?? []), groupText(one.name)]);
      element.replaceChildren(...(groups.length ? [...by].map(([word, names]) => statusPill(word, names.join(", "))) : [statusPill(status)]));
    },
  };
}
