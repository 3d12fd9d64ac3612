// One monitor: what the network thinks of it, when it was heard, and the servers it measures.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { dateTime, relative, when, whole } from "./format.js";
import { monitorButtons } from "./monitor-actions.js";
import { changeTable } from "./monitor-history.js";
import { fixed, GLOBAL, KINDS, path, pill, serverLink, since } from "./monitor-words.js";
import { notice, pageHead, problemNotice, tile } from "./notice.js";
import { pagedTable } from "./paged.js";
import { repeat } from "./queue-words.js";
import { link } from "./router.js";

const EVERY = 5;
const LOOKS = { active: "good", paused: "bad" };

export function mountMonitor(root, { id, signal, can }) {
  let gone = false;
  let drawn = "";
  document.title = `${id} · Monitors · Skep`;
  const tiles = { status: tile("Status"), heard: tile("Last heard"), active: tile("Active on"), testing: tile("Testing on"), rest: tile("Candidate for") };
  const buttons = h("div", { class: "row" });
  const head = pageHead(id, "\u00a0", buttons);
  const line = head.querySelector("p");
  const trouble = h("div");
  const hint = h("div");
  const facts = h("dl", { class: "facts" }, h("span", { class: "ghost" }));
  const servers = pagedTable({
    path: path("monitors", id, "/assignments"), rows: "assignments", cursor: "after", entries: "more servers", signal,
    label: "Its servers", empty: "It measures no server. An approved monitor is a candidate for every server of its address family.",
    rowClass: (one) => (one.status === "paused" ? "faded" : null),
    columns: [
      { title: "Server", class: "short", cell: (one) => [h("a", { href: serverLink(one.server) }, h("strong", null, one.server))] },
      { title: "It is", class: "nowrap", cell: (one) => [pill(one.status, LOOKS[one.status]), h("div", { class: "dim small" }, `for ${since(one.since)}`)] },
      { title: "Score", class: "nowrap num", cell: (one) => fixed(one.score, 1) },
      { title: "Last sample", class: "nowrap", cell: (one) => (one.last_sample_at ? when(one.last_sample_at, relative(one.last_sample_at)) : h("span", { class: "dim" }, "never")) },
      { title: "Violates", class: "free", cell: (one) => (one.violation ? [h("span", { class: "bad" }, KINDS[one.violation.kind] ?? one.violation.kind), h("div", { class: "dim small" }, one.violation.since ? `for ${since(one.violation.since)}` : "")] : one.pause_reason ?? h("span", { class: "dim" }, "nothing")) },
      { title: "Why", class: "nowrap", cell: (one) => h("a", { href: serverLink(one.server, { explain: id }), "aria-label": `Why it is that to ${one.server}` }, "Explain") },
    ],
  });
  const history = changeTable({ path: path("monitors", id, "/history"), other: "server", signal });
  const rest = [hint, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), h("section", { class: "card" }, h("h2", null, "What it is"), facts), h("h2", null, "Servers"), ...servers.elements, h("h2", null, "History"), ...history.elements];
  root.append(h("p", { class: "small" }, h("a", { href: link("/monitors", { view: "monitors" }) }, "All monitors")), head, trouble, ...rest);

  function show(one) {
    const { assignments: on, effective_status: counts } = one;
    setText(line, `${one.ip}${one.account ? `, account ${one.account}` : ""}`);
    tiles.status.set(counts, counts === one.status ? GLOBAL[counts]?.[1] ?? "" : `${one.status}, but its account is disabled`, counts === "paused" || counts === "deleted");
    tiles.heard.set(one.seen_at ? relative(one.seen_at) : "never", one.agent ?? "no agent has reported");
    tiles.active.set(whole(on.active), on.active === 1 ? "server" : "servers");
    tiles.testing.set(whole(on.testing), on.testing === 1 ? "server" : "servers");
    tiles.rest.set(whole(on.candidate), `paused on ${whole(on.paused)}`);
    const shape = JSON.stringify([one.status, counts, one.updated_at, one.key_id, one.agent, Boolean(one.seen_at)]);
    if (shape === drawn) return;
    drawn = shape;
    if (can("admin")) {
      const held = buttons.contains(document.activeElement);
      buttons.replaceChildren(...monitorButtons(one, { all: true, look: "", failed, done: acted, removing }));
      if (held) buttons.firstChild?.focus();
    }
    hint.replaceChildren(...hints(one));
    const labels = Object.entries(one.labels);
    const parts = {
      Address: h("span", { class: "mono" }, one.ip), Account: one.account ?? "nobody's",
      Status: pill(one.status, ...(GLOBAL[one.status] ?? [])),
      Key: one.key_id ? [h("code", null, one.key_id), h("span", { class: "dim" }, " scope agent, this monitor's alone")] : "none",
      Agent: one.agent ?? "–", Labels: labels.length > 0 && h("span", { class: "chips" }, labels.map(([name, value]) => h("span", { class: "chip" }, value ? `${name}=${value}` : name))),
      Added: when(one.created_at, dateTime(one.created_at)), Changed: when(one.updated_at, dateTime(one.updated_at)),
    };
    facts.replaceChildren(...Object.entries(parts).filter(([, value]) => value).map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
  }

  async function load() {
    if (gone) return;
    try {
      const one = await api.get(path("monitors", id), { signal });
      if (trouble.dataset.from === "load") trouble.replaceChildren();
      show(one);
    } catch (problem) {
      if (problem.silent || gone) return;
      gone = problem.status === 404;
      trouble.dataset.from = "load";
      trouble.replaceChildren(gone ? notice("warn", problem.title, `${id} is not there, or no longer.`, h("a", { class: "button", href: link("/monitors", { view: "monitors" }) }, "All monitors")) : problemNotice(problem, load));
      if (gone) for (const one of [...rest, buttons]) one.hidden = true;
    }
  }

  // Nobody wants to hear that it is gone from a question that was asked a moment before.
  function removing() {
    gone = true;
  }

  function failed(problem) {
    gone = false;
    trouble.dataset.from = "action";
    trouble.replaceChildren(problemNotice(problem));
  }

  async function acted(text) {
    trouble.replaceChildren();
    if (text.endsWith("deleted")) return location.assign(link("/monitors", { view: "monitors" }));
    await Promise.all([load(), servers.load(), history.load()]);
  }

  load();
  repeat(signal, EVERY, () => Promise.all([load(), servers.renew(), history.renew()]));
}

/** What keeps it from measuring. */
function hints({ id, status, effective_status: counts, key_id: key, seen_at: seen }) {
  if (status === "pending") return [notice("warn", "It waits to be approved", "A pending monitor measures nothing. Approve it, on trial first if you do not know it.")];
  if (status === "deleted") return [notice("warn", "It is deleted", "It leaves each server at the next review, and is gone then.")];
  if (status !== counts) return [notice("warn", "Its account is disabled", "It counts as paused everywhere until the account is enabled again.")];
  if (status === "paused") return [notice("info", "It is paused", "It measures nothing until somebody resumes it.")];
  if (!key && !seen) return [notice("warn", "It has no key", `An agent needs one to report for it: \`skep monitors key ${id}\`, or the button above. As long as this node is open, an agent on its machine only names it: \`skep agent --server ${location.origin} --monitor ${id}\`.`)];
  if (!seen) return [notice("info", "It was never heard", `Start its agent where it measures: \`skep agent --server ${location.origin} --key KEY\`.`)];
  return [];
}
