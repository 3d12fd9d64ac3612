// One queue: its numbers and its last hour, and below them, one at a time, everything it has.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { count, dateTime, rate } from "./format.js";
import { notice, pageHead, tile } from "./notice.js";
import { deadLetters } from "./queue-dead.js";
import { delayedTab } from "./queue-delayed.js";
import { groupsTab } from "./queue-groups.js";
import { messagesTab } from "./queue-messages.js";
import { optionsTab } from "./queue-options.js";
import { partitionsTab } from "./queue-partitions.js";
import { hourPlot, minutesOf, ratesOf } from "./queue-plots.js";
import { maintenance } from "./queue-switches.js";
import { tailTab } from "./queue-tail.js";
import { lagText, queuePath, repeat, resourcePath, sayings } from "./queue-words.js";
import { link, withQuery } from "./router.js";
import { many } from "./session-words.js";
import { tabList } from "./tabs.js";

const EVERY = 5;
const HOUR = 3600000;
const TABS = [
  ["messages", "Messages", messagesTab], ["partitions", "Partitions", partitionsTab], ["groups", "Groups", groupsTab], ["dead", "Dead letters", deadLetters],
  ["delayed", "Delayed", delayedTab], ["tail", "Live tail", tailTab], ["options", "Options", optionsTab],
];

export function mountQueue(root, { queue, signal, params, noteParams, can }) {
  let info = null;
  let gone = false;
  const watchers = new Set(); // parts that want to know the queue as it is now
  document.title = `${queue} · Queues · Skep`;
  const said = sayings();
  const { banner } = maintenance({ signal, can, said });
  const tiles = { pending: tile("Pending"), pushed: tile("Pushed"), acked: tile("Acknowledged"), kept: tile("Messages"), dead: tile("Dead letters"), delayed: tile("Delayed") };
  const plot = hourPlot();
  const exported = h("a", { class: "button", href: queuePath(queue, "/export"), download: `${queue}.ndjson` }, "Export");
  const head = pageHead(queue, "\u00a0", exported);
  const line = head.querySelector("p");
  const tabs = tabList({ tabs: TABS, label: "Parts of the queue", wanted: params.get("tab") }, (name) => {
    noteParams({ queue, tab: name }, { step: true });
    params = new URLSearchParams();
    open(name);
  });
  const rest = [exported, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), plot.element, tabs.element];
  root.append(h("p", { class: "small" }, h("a", { href: link("/queues") }, "All queues")), head, banner, said.element, ...rest.slice(1));
  let ending = null;

  function open(name) {
    ending?.abort();
    ending = new AbortController();
    watchers.clear();
    const [, , make] = TABS.find(([key]) => key === name);
    const context = {
      queue, can, said, params, signal: AbortSignal.any([signal, ending.signal]), reload: load,
      note: (filters) => noteParams({ queue, tab: name, ...filters }),
      /** Calls `hear` with the queue as it is, now and whenever it was asked for. */
      watch(hear) {
        watchers.add(hear);
        if (info) hear(info);
      },
    };
    tabs.show(name, make(context).element);
  }

  function show(points) {
    const { totals, messages = totals, consumerGroups: groups = [], namespace, task, createdAt } = info;
    const rates = ratesOf(points);
    const lag = Math.max(0, ...groups.map((one) => one.lagSeconds ?? 0));
    setText(line, `${[namespace && `namespace ${namespace}`, task && `task ${task}`].filter(Boolean).join(", ")}${namespace || task ? ", " : ""}made ${dateTime(createdAt)}${info.clearedAt ? `, cleared ${dateTime(info.clearedAt)}` : ""}`);
    tiles.pending.set(count(messages.pending), lag ? `the oldest since ${lagText(lag)}` : many(groups.length, "group"));
    tiles.pushed.set(rate(rates.pushed), rates.of);
    tiles.acked.set(rate(rates.acked), rates.failed ? `${rate(rates.failed)} failed` : `${rate(rates.popped)} popped`, rates.failed > 0);
    tiles.kept.set(count(messages.total), `in ${count(totals.partitions)} partitions`);
    tiles.dead.set(count(messages.deadLetter), messages.deadLetter ? "given up" : "none", messages.deadLetter > 0);
    tiles.delayed.set(count(messages.delayed), "not due yet");
    plot.set(minutesOf(points));
    tabs.count("partitions", totals.partitions);
    tabs.count("groups", groups.length);
    tabs.count("dead", messages.deadLetter);
    tabs.count("delayed", messages.delayed);
    for (const hear of watchers) hear(info);
  }

  async function load() {
    try {
      const from = new Date(Date.now() - HOUR - 60000).toISOString();
      const stats = withQuery("/api/v1/status/analytics", { queue, from, interval: "minute" });
      const [answer, { points }] = await Promise.all([api.get(`${resourcePath(queue)}?partitions=1`, { signal }), api.get(stats, { signal })]);
      info = answer;
      show(points);
      if (gone) {
        gone = false;
        for (const one of rest) one.hidden = false;
        said.clear();
        open(tabs.chosen());
      }
      said.mended();
    } catch (problem) {
      if (problem.status !== 404) return said.fail(problem, load);
      gone = true;
      ending.abort();
      for (const one of rest) one.hidden = true;
      said.element.replaceChildren(notice("warn", problem.title, `${queue} is not there, or no longer.`, h("a", { class: "button", href: link("/queues") }, "All queues")));
    }
  }

  load();
  open(tabs.chosen());
  repeat(signal, EVERY, load);
  return plot.destroy;
}
