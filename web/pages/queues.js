// Queues: what waits, what goes through, and which queues there are. Each queue on a page of its own (#/queues?queue=…).

import { api } from "../api.js";
import { copyButton } from "../copy.js";
import { h } from "../dom.js";
import { count, rate, whole } from "../format.js";
import { pageHead, tile } from "../notice.js";
import { newQueueDialog } from "../queue-new.js";
import { mountQueue } from "../queue-one.js";
import { hourPlot, minutesOf, ratesOf } from "../queue-plots.js";
import { maintenance } from "../queue-switches.js";
import { queueTable } from "../queue-table.js";
import { repeat, sayings } from "../queue-words.js";
import { many } from "../session-words.js";
import { link } from "../router.js";

export const page = { "path": "/queues", "title": "Queues", "order": 50, "needs": "read", "icon": "M3 5h18v4H3zM3 10.5h18v4H3zM3 16h18v4H3zM7 7h.01M7 12.5h.01M7 18h.01" };

const EVERY = 5;
const PUSH = `skep push orders '{"id": 17}' --partition customer-4`;
const POP = "skep pop orders";

export function mount(root, context) {
  const queue = context.params.get("queue");
  return queue ? mountQueue(root, { queue, ...context }) : mountAll(root, context);
}

function mountAll(root, { signal, params, noteParams, can }) {
  const said = sayings();
  const { banner, card } = maintenance({ signal, can, said });
  const tiles = { queues: tile("Queues"), pending: tile("Pending"), pushed: tile("Pushed"), acked: tile("Acknowledged"), dead: tile("Dead letters"), delayed: tile("Delayed") };
  const plot = hourPlot();
  const table = queueTable({ signal, params, noteParams });
  const begin = beginning();
  const busy = h("div", { class: "column" }, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), plot.element, table.element);
  const actions = can("admin") ? [h("button", { type: "button", class: "primary", onclick: newQueueDialog }, "New queue")] : [];
  busy.hidden = true;
  root.append(pageHead("Queues", "Messages wait here until consumers have done them.", ...actions), banner, said.element, begin, busy, card);

  async function load() {
    try {
      const [{ queues, partitions, consumerGroups: groups, messages }, { throughput }] = await Promise.all([api.get("/api/v1/resources/overview", { signal }), api.get("/api/v1/status", { signal })]);
      const rates = ratesOf(throughput);
      begin.hidden = queues > 0;
      busy.hidden = !queues;
      tiles.queues.set(whole(queues), `${count(partitions)} partitions, ${many(groups, "group")}`);
      tiles.pending.set(count(messages.pending), `of ${count(messages.total)} kept`);
      tiles.pushed.set(rate(rates.pushed), rates.of);
      tiles.acked.set(rate(rates.acked), rates.failed ? `${rate(rates.failed)} failed` : `${rate(rates.popped)} popped`, rates.failed > 0);
      tiles.dead.set(count(messages.deadLetter), messages.deadLetter ? "given up" : "none", messages.deadLetter > 0);
      tiles.delayed.set(count(messages.delayed), "not due yet");
      plot.set(minutesOf(throughput));
      said.mended();
    } catch (problem) {
      said.fail(problem, load);
    }
  }

  load();
  repeat(signal, EVERY, () => Promise.all([load(), table.renew()]));
  return plot.destroy;
}

/** What to do where there is no queue yet. */
function beginning() {
  const step = (title, sample, text) => h("li", { class: "stack" }, h("h3", null, title), h("div", { class: "curl" }, h("pre", null, sample), copyButton(() => sample)), h("p", { class: "dim small" }, text));
  const element = h("section", { class: "card stack begin" }, h("h2", null, "No queue yet"),
    h("p", { class: "dim" }, "A queue keeps messages until consumers have done them. It is made by its first message, or by the button above."),
    h("ol", { class: "stack" },
      step("Push a message", PUSH, ["Messages of one partition are handed out strictly in order, partitions in parallel. ", h("a", { href: link("/api") }, "The API"), " does the same over HTTP."]),
      step("Pop it", POP, "It prints the message and the command that acknowledges it.")));
  element.hidden = true;
  return element;
}
