// The table of queues: by name, with filters, however many there are.

import { api } from "./api.js";
import { h } from "./dom.js";
import { count, rate } from "./format.js";
import { plain } from "./live-table.js";
import { pagedRows } from "./queue-pages.js";
import { chosenOf, lagText, linkCell, queueLink, repeat, settled, twoLines } from "./queue-words.js";

const LIMIT = 100;
const CHOICES = 1000;
const LAGGING = "/api/v1/consumer-groups/lagging?minLagSeconds=1";
const LAGS_EVERY = 30; // seconds: the node looks at every group for it

export function queueTable({ signal, params, noteParams }) {
  let lags = new Map();
  const search = h("input", { type: "search", placeholder: "Name begins with", "aria-label": "Only queues whose name begins with", value: params.get("search") ?? "", oninput: settled(filter) });
  const namespace = choice("All namespaces", "Only of this namespace", "namespace");
  const task = choice("All tasks", "Only of this task", "task");
  const inputs = { search, namespace, task };

  function choice(all, label, name) {
    const value = params.get(name) ?? "";
    const select = h("select", { "aria-label": label, onchange: filter }, h("option", { value: "" }, all), value && h("option", { value }, value));
    select.value = value;
    return select;
  }

  const dead = () => {
    const link = linkCell((one) => count(one.messages.deadLetter), (one) => queueLink(one.name, "dead"));
    return { element: link.element, set: (one) => { link.set(one); link.element.classList.toggle("bad", one.messages.deadLetter > 0); link.element.classList.toggle("zero", !one.messages.deadLetter); } };
  };
  const list = pagedRows({
    path: "/api/v1/resources/queues", rows: (answer) => answer.queues, limit: LIMIT, query: () => chosenOf(inputs), place: (one) => one.name, signal,
    label: "Queues, by name", boxClass: "queues-box", key: (one) => one.name,
    empty: () => (Object.values(chosenOf(inputs)).some(Boolean) ? "No queue matches." : "There is no queue yet."),
    open: (one) => { location.hash = queueLink(one.name); },
    columns: [
      { title: "Queue", class: "free", make: () => twoLines(strong((one) => one.name, (one) => queueLink(one.name)), (one) => [one.namespace, one.task].filter(Boolean).join(" · ")) },
      { title: "Pending", class: "num", make: () => twoLines(plain((one) => count(one.messages.pending)), (one) => (one.messages.processing ? `${count(one.messages.processing)} worked on` : "")) },
      { title: "In", class: "num", text: (one) => rate(one.rates?.pushed) },
      { title: "Out", class: "num", text: (one) => rate(one.rates?.acked) },
      { title: "Lag", class: "num", text: (one) => lagText(one.lagSeconds ?? lags.get(one.name)) },
      { title: "Dead", class: "num", make: dead },
      { title: "Delayed", class: "num", text: (one) => count(one.messages.delayed) },
      { title: "Partitions", class: "num", text: (one) => count(one.partitions) },
    ],
  });

  function filter() {
    noteParams(chosenOf(inputs));
    list.load();
  }

  // What there is to choose from, and how far groups are behind.
  async function loadChoices() {
    const put = (select, names) => {
      const value = select.value;
      const known = new Set([...select.options].map((option) => option.value));
      select.append(...names.filter((name) => name && !known.has(name)).map((name) => h("option", { value: name }, name)));
      select.value = value;
    };
    const [spaces, tasks] = await Promise.all([api.get("/api/v1/resources/namespaces", { signal }), api.get("/api/v1/resources/tasks", { signal })]).catch(() => [null, null]);
    if (!spaces) return;
    put(namespace, spaces.namespaces.slice(0, CHOICES).map((one) => one.namespace));
    put(task, tasks.tasks.slice(0, CHOICES).map((one) => one.task));
  }

  async function loadLags() {
    const groups = await api.get(LAGGING, { signal }).catch(() => null);
    if (!groups) return;
    lags = new Map();
    for (const { queueName, maxTimeLag } of groups) lags.set(queueName, Math.max(maxTimeLag, lags.get(queueName) ?? 0));
    list.draw();
  }

  list.load();
  loadChoices();
  loadLags();
  repeat(signal, LAGS_EVERY, loadLags);
  return {
    element: h("section", { class: "column", "aria-label": "Queues" }, h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, search, namespace, task), list.element),
    renew: list.renew,
  };
}

function strong(text, href) {
  const link = linkCell(text, href);
  return { element: h("strong", { class: "cut" }, link.element), set: link.set };
}
