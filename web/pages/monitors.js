// Monitors: which monitors watch which server, and why. Each server (#/monitors?server=…) and monitor (#/monitors?monitor=…) on a page of its own.

import { api } from "../api.js";
import { chart } from "../chart.js";
import { copyButton } from "../copy.js";
import { h } from "../dom.js";
import { units, whole } from "../format.js";
import { listen } from "../live.js";
import { askForAccount, askForMonitor, askForServer } from "../monitor-actions.js";
import { accountList, belowList, monitorList, serverList } from "../monitor-lists.js";
import { mountMonitor } from "../monitor-one.js";
import { mountServer } from "../monitor-server.js";
import { pageHead, tile } from "../notice.js";
import { repeat, sayings } from "../queue-words.js";
import { link } from "../router.js";
import { many } from "../session-words.js";
import { tabList } from "../tabs.js";

export const page = { "path": "/monitors", "title": "Monitors", "order": 25, "needs": "read", "icon": "M2.5 12s3.5-6.5 9.5-6.5 9.5 6.5 9.5 6.5-3.5 6.5-9.5 6.5S2.5 12 2.5 12zM12 9.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z" };

const EVERY = 5;
const TABS = [["servers", "Servers", serverList], ["monitors", "Monitors", monitorList], ["accounts", "Accounts", accountList]];
const [DAY, HOUR, QUARTER] = [86400000, 3600000, 900000];

export function mount(root, context) {
  const server = context.params.get("server");
  const monitor = context.params.get("monitor");
  if (server) return mountServer(root, { id: server, ...context });
  return monitor ? mountMonitor(root, { id: monitor, ...context }) : mountFleet(root, context);
}

function mountFleet(root, { signal, params, noteParams, can, session }) {
  let known = "";
  let list = null;
  let ending = null;
  const allowed = can("admin");
  const said = sayings();
  const tiles = { below: tile("Below target"), servers: tile("Servers"), monitors: tile("Monitors"), active: tile("Active assignments"), churn: tile("Changes in 24 h") };
  const plots = {
    churn: chart({ title: "Changes of assignments", unit: units.count, span: DAY, gap: DAY, floor: 4, empty: "No change yet", series: [{ key: "changes", label: "In a quarter of an hour", color: 1, area: true }] }),
    below: chart({ title: "Servers below target", unit: units.count, span: HOUR, gap: 60000, floor: 2, empty: "Not known yet", series: [{ key: "servers", label: "All", color: 2 }, { key: "below_target", label: "Below target", color: "bad", area: true }] }),
  };
  const begin = beginning(allowed, session.open);
  const below = belowList({ signal });
  const tabs = tabList({ tabs: TABS, label: "Parts of the fleet", wanted: params.get("view") }, (name) => {
    noteParams({ view: name }, { step: true });
    params = new URLSearchParams();
    open(name);
  });
  const busy = h("div", { class: "column" }, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), h("div", { class: "pair" }, Object.values(plots).map((one) => one.element)), below.element, tabs.element);
  const add = (text, ask, look) => h("button", { type: "button", class: look, onclick: () => ask(changed) }, text);
  const actions = allowed ? [add("Add an account", askForAccount, ""), add("Add a monitor", askForMonitor, ""), add("Add a server", askForServer, "primary")] : [];
  busy.hidden = true;
  root.append(pageHead("Monitors", "Which monitors watch which server, and why.", ...actions), said.element, begin, busy);

  function open(name) {
    ending?.abort();
    ending = new AbortController();
    const [, , make] = TABS.find(([key]) => key === name);
    list = make({ signal: AbortSignal.any([signal, ending.signal]), params, can, said, changed, note: (filters) => noteParams({ view: name, ...filters }) });
    tabs.show(name, list.element);
  }

  function show({ accounts, monitors, servers, assignments, churn, reviews, settings, points }) {
    const everybody = Object.values(monitors).reduce((sum, one) => sum + one, 0) - (monitors.deleted ?? 0);
    const changes = churn.reduce((sum, one) => sum + one.changes, 0);
    const empty = !servers.total && !everybody && !accounts;
    begin.hidden = !empty;
    busy.hidden = empty;
    tiles.below.set(whole(servers.below_target), servers.below_target ? `have fewer than ${settings.target_active} active` : "all have what they should", servers.below_target > 0);
    tiles.servers.set(whole(servers.total), [servers.paused && `${whole(servers.paused)} paused`, servers.unreviewed && `${whole(servers.unreviewed)} not reviewed yet`].filter(Boolean).join(", ") || "all are watched");
    tiles.monitors.set(whole(everybody), `${whole(monitors.active ?? 0)} active, ${whole(monitors.testing ?? 0)} testing, ${whole(monitors.pending ?? 0)} pending`);
    tiles.active.set(whole(assignments.active), `${whole(assignments.testing)} testing, ${whole(assignments.paused)} paused`);
    tiles.churn.set(whole(changes), reviews.failed ? `${whole(reviews.failed)} reviews failed on this node` : `${many(reviews.due, "review")} due, ${whole(reviews.done)} done here`, reviews.failed > 0);
    tabs.count("servers", servers.total);
    tabs.count("monitors", everybody);
    tabs.count("accounts", accounts);
    plots.churn.set(quarters(churn));
    plots.below.set(points);
    below.set(servers.below_target);
    // The first servers came, or something was added elsewhere.
    if (known && known !== [servers.total, everybody, accounts].join()) list.load();
    known = [servers.total, everybody, accounts].join();
  }

  async function load() {
    try {
      show(await api.get("/api/v1/monitors/overview", { signal }));
      said.mended();
    } catch (problem) {
      said.fail(problem, load);
    }
  }

  async function changed() {
    await Promise.all([load(), list.load(), below.load()]);
  }

  const stop = listen("/api/v1/live", "monitors", ({ changes }) => { if (changes?.length && !document.hidden) load(); });
  load();
  open(tabs.chosen());
  repeat(signal, EVERY, () => Promise.all([load(), list.renew(), below.renew()]));
  return () => {
    stop();
    Object.values(plots).forEach((one) => one.destroy());
  };
}

/** Every quarter of an hour of the last day, also those in which nothing changed, which the node leaves out. */
function quarters(churn) {
  const known = new Map(churn.map((one) => [Math.floor(one.at / QUARTER), one.changes]));
  const last = Math.floor(Date.now() / QUARTER);
  const first = last - DAY / QUARTER + 1;
  return Array.from({ length: DAY / QUARTER }, (_, index) => ({ at: (first + index) * QUARTER, changes: known.get(first + index) ?? 0 }));
}

/** What to do where there is nothing yet. */
function beginning(allowed, open) {
  const step = (title, sample, text) => h("li", { class: "stack" }, h("h3", null, title), h("div", { class: "curl" }, h("pre", null, sample), copyButton(() => sample)), h("p", { class: "dim small" }, text));
  const element = h("section", { class: "card stack begin" }, h("h2", null, "Nothing is watched yet"),
    h("p", { class: "dim" }, `Monitors measure servers, and of those that could the best watch each server: ${allowed ? "add one of each with the buttons above, or on the command line." : "somebody with a key of the scope admin can add one of each."}`),
    h("ol", { class: "stack" },
      step("Add a server", "skep servers add ntp-1 --ip 192.0.2.17", ["It is asked for the time; ", h("code", null, "--http"), " and ", h("code", null, "--tcp"), " measure something else."]),
      step("Add a monitor", "skep monitors add ams-3 --ip 198.51.100.7 --status active", `${open ? "" : "It prints the monitor's key, once. "}With a dozen monitors in different networks a server has all it needs.`),
      step("Let it measure", `skep agent --server ${location.origin} ${open ? "--monitor ams-3" : "--key KEY"}`, ["It fetches what to measure, and reports. Many at once: ", h("code", null, "skep monitors import fleet.jsonl"), ". ", h("a", { href: link("/api") }, "The API"), " does the same."])));
  element.hidden = true;
  return element;
}
