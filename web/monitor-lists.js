// The servers, monitors and accounts of the fleet, in pages; first those servers that lack something.

import { h, setText } from "./dom.js";
import { relative, when, whole } from "./format.js";
import { plain } from "./live-table.js";
import { accountButtons, monitorButtons, serverButtons } from "./monitor-actions.js";
import { fixed, GLOBAL, globalPill, monitorLink, probeText, serverLink, serverState } from "./monitor-words.js";
import { pagedTable } from "./paged.js";
import { pagedRows } from "./queue-pages.js";
import { chosenOf, linkCell, settled, twoLines } from "./queue-words.js";

const BELOW = 10;

const ago = (time) => (time ? when(time, relative(time)) : h("span", { class: "dim" }, "never"));
const ofTarget = (pool) => ({ counts, targets }) => `${whole(counts[pool])} of ${whole(targets[pool])}`;

// A cell that is drawn anew only if what it shows has changed.
function drawn(key, draw, tag = "div") {
  const element = h(tag);
  let before = null;
  return {
    element,
    set(row) {
      if (before === (before = key(row))) return;
      element.replaceChildren(...[draw(row)].flat(Infinity).filter(Boolean));
    },
  };
}

const time = (of) => () => drawn((row) => `${of(row)} ${of(row) ? relative(of(row)) : ""}`, (row) => ago(of(row)), "span");

/** A table of any length with its filters. */
function filtered({ context, filters, fields, actions, ...options }) {
  const { signal, note, said, changed } = context;
  const ask = settled(() => {
    note(chosenOf(filters));
    list.load();
  });
  for (const one of Object.values(filters)) {
    one.value = context.params.get(one.name) ?? "";
    one.addEventListener(one.tagName === "SELECT" ? "change" : "input", ask);
  }
  const act = {
    failed: said.fail,
    done: () => {
      said.clear();
      return changed();
    },
  };
  const buttons = { title: "Actions", class: "last", make: () => drawn((row) => actions.key(row), (row) => h("div", { class: "actions" }, actions.make(row, act))) };
  const list = pagedRows({
    signal, query: () => chosenOf(filters), key: (one) => one.id, place: (one) => one.id, cursor: "after",
    columns: context.can("admin") ? [...fields, buttons] : fields, ...options,
    empty: () => (Object.values(chosenOf(filters)).some(Boolean) ? "Nothing matches." : options.empty),
  });
  list.load();
  return { element: [h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, Object.values(filters)), list.element], load: list.load, renew: list.renew };
}

const search = (what) => h("input", { type: "search", name: "search", placeholder: "Id contains", "aria-label": `Only ${what} whose id contains` });
const account = () => h("input", { type: "search", name: "account", placeholder: "Account", "aria-label": "Only of this account" });
const choose = (name, label, options) => h("select", { name, "aria-label": label }, options.map(([value, text]) => h("option", { value }, text)));

export function serverList(context) {
  return filtered({
    context, path: "/api/v1/servers", rows: (answer) => answer.servers, label: "Servers, by id", boxClass: "servers-box",
    filters: { search: search("servers"), account: account(), state: choose("state", "State", [["", "All servers"], ["below_target", "Below target"]]) },
    empty: "There is no server yet. Add one with the button above, and the monitors there are become its candidates.",
    rowClass: (one) => (one.paused ? "faded" : one.below_target ? "failing" : ""),
    fields: [
      { title: "Server", class: "free", make: () => twoLines(linkCell((one) => one.id, (one) => serverLink(one.id)), (one) => one.account ?? "") },
      { title: "Measured", class: "free", make: () => twoLines(plain((one) => probeText(one.probe), "span", "mono cut"), (one) => one.ip) },
      { title: "Active", class: "num", text: ofTarget("active") },
      { title: "Testing", class: "num", text: ofTarget("testing") },
      { title: "Score", class: "num", text: (one) => fixed(one.score, 1) },
      { title: "State", class: "standing-column", make: () => drawn((one) => serverState(one)[0], (one) => h("span", { class: `pill ${serverState(one)[1]}` }, serverState(one)[0]), "span") },
      { title: "Reviewed", class: "nowrap time", make: time((one) => one.reviewed_at) },
    ],
    actions: { key: (one) => `${one.id} ${one.paused}`, make: (one, act) => serverButtons(one, act).slice(0, 1) },
  });
}

export function monitorList(context) {
  const statuses = Object.keys(GLOBAL).map((one) => [one, one[0].toUpperCase() + one.slice(1)]);
  return filtered({
    context, path: "/api/v1/monitors", rows: (answer) => answer.monitors, label: "Monitors, by id", boxClass: "monitors-box",
    filters: { search: search("monitors"), account: account(), status: choose("status", "Status", [["", "Any status"], ...statuses]) },
    empty: "There is no monitor yet. Add one with the button above; its key lets an agent measure for it.",
    rowClass: (one) => (one.effective_status === "paused" || one.status === "deleted" ? "faded" : ""),
    fields: [
      { title: "Monitor", class: "free", make: () => twoLines(linkCell((one) => one.id, (one) => monitorLink(one.id)), (one) => one.account ?? "") },
      { title: "Address", class: "free", text: (one) => one.ip },
      { title: "Status", class: "standing-column", make: () => drawn((one) => `${one.status} ${one.effective_status}`, globalPill) },
      { title: "Active", means: "Active on", class: "num", text: (one) => whole(one.assignments.active) },
      { title: "Testing", means: "Testing on", class: "num", text: (one) => whole(one.assignments.testing) },
      { title: "Candidate", class: "num", text: (one) => whole(one.assignments.candidate) },
      { title: "Paused", class: "num", text: (one) => whole(one.assignments.paused) },
      { title: "Heard", class: "nowrap time", make: time((one) => one.seen_at) },
    ],
    actions: { key: (one) => `${one.id} ${one.status}`, make: (one, act) => monitorButtons(one, act).slice(-2) },
  });
}

export function accountList(context) {
  const limit = (one, flag) => (one.flags[flag] === undefined ? "–" : whole(one.flags[flag]));
  return filtered({
    context, path: "/api/v1/accounts", rows: (answer) => answer.accounts, label: "Accounts, by id", boxClass: "accounts-box",
    filters: { search: search("accounts") },
    empty: "There is no account yet. Accounts say how many monitors somebody may register, and have on one server.",
    rowClass: (one) => (one.flags.monitor_enabled === false ? "faded" : ""),
    fields: [
      { title: "Account", class: "free", make: () => twoLines(plain((one) => one.id, "strong"), (one) => one.name ?? "") },
      { title: "Monitors", means: "Monitors of an account", class: "num", text: (one) => whole(one.monitors) },
      { title: "May register", class: "num", text: (one) => limit(one, "monitor_limit") },
      { title: "On a server", class: "num", text: (one) => limit(one, "monitor_per_server_limit") },
      { title: "Servers", means: "Servers of an account", class: "num", text: (one) => whole(one.servers) },
      { title: "State", make: () => drawn((one) => one.flags.monitor_enabled, (one) => h("span", { class: `pill ${one.flags.monitor_enabled === false ? "bad" : "good"}` }, one.flags.monitor_enabled === false ? "disabled" : "enabled"), "span") },
    ],
    actions: { key: (one) => JSON.stringify(one), make: (one, act) => accountButtons(one, act) },
  });
}

/** The servers with too few active monitors, before anything else. */
export function belowList({ signal }) {
  const heading = h("h2", null, "Below target");
  const list = pagedTable({
    path: "/api/v1/servers", rows: "servers", query: () => ({ state: "below_target" }), limit: BELOW, cursor: "after", entries: "more servers", signal,
    label: "Servers below target", empty: "None.", rowClass: () => "failing",
    columns: [
      { title: "Server", class: "short", cell: (one) => h("a", { href: serverLink(one.id) }, h("strong", null, one.id)) },
      { title: "Active", class: "nowrap num", cell: (one) => h("span", { class: "bad" }, ofTarget("active")(one)) },
      { title: "Testing", class: "nowrap num", cell: ofTarget("testing") },
      { title: "Candidates", class: "nowrap num", cell: (one) => whole(one.counts.candidate) },
      { title: "What to do", class: "free", cell: lacking },
      { title: "Next review", class: "nowrap", cell: (one) => when(one.next_review_at, relative(one.next_review_at)) },
    ],
  });
  const element = h("section", { class: "column" }, heading, ...list.elements);
  element.hidden = true;
  return {
    element,
    load: list.load,
    renew: list.renew,
    set(count) {
      element.hidden = !count;
      setText(heading, `Below target (${whole(count)})`);
    },
  };
}

// The most likely reason, from the counts alone; its page knows more.
function lacking({ counts, targets, reviewed_at: reviewed }) {
  const all = counts.active + counts.testing + counts.candidate;
  if (!all) return "No monitor can watch it: add monitors of its address family, and approve them.";
  if (!reviewed) return "Its first review is to come.";
  if (all < targets.active) return `Only ${whole(all)} could: add monitors.`;
  return counts.testing ? "Those in testing gather samples, or wait for their turn." : "Nobody is fit: see its page for the reasons.";
}
