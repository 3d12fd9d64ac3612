// The nodes: how each is, its load over the time one looks, its breaker, and draining it.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, setText, svg } from "./dom.js";
import { duration, millis, percent, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { BREAKERS, score, stateOf } from "./cluster-words.js";
import { explainCell } from "./explain.js";
import { problemNotice } from "./notice.js";

const SPAN = 120000;
const GAP = 3500;
const [WIDTH, HEIGHT] = [84, 28];
const pair = (text, more) => {
  const parts = [plain(text), plain(more, "div", "dim small")];
  return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
};

/** What was seen of each node's load, kept as long as the page is open. */
export function loads() {
  const seen = new Map();
  return {
    of: (name) => seen.get(name) ?? [],
    hear(at, servers) {
      for (const { server_id: name, load_score: load } of servers) {
        const points = seen.get(name) ?? [];
        if (points.length && at <= points.at(-1).at) continue;
        seen.set(name, [...points.filter((one) => one.at > at - SPAN), { at, load }]);
      }
      // One that has gone is forgotten once nothing of it would be drawn.
      for (const [name, points] of seen) if (points.at(-1).at < at - SPAN) seen.delete(name);
    },
  };
}

/** A small line of the last two minutes; its top is a load of 1. */
function spark(history) {
  const line = svg("path", { class: "spark-line" });
  const area = svg("path", { class: "spark-area" });
  const picture = svg("svg", { class: "spark", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT }, area, line);
  const now = h("strong", { class: "num" });
  const raw = h("div", { class: "dim small num" });
  return {
    element: h("div", { class: "load" }, picture, h("div", null, now, raw)),
    set({ server_id: name, load_score: load, raw_score: last, cpu }) {
      const points = history(name);
      const end = points.at(-1)?.at ?? 0;
      const place = ({ at, load: value }) => `${(WIDTH - ((end - at) / SPAN) * WIDTH).toFixed(1)} ${(HEIGHT - 1 - Math.min(1, Math.max(0, value)) * (HEIGHT - 2)).toFixed(1)}`;
      const runs = points.reduce((all, one, index) => {
        if (!index || one.at - points[index - 1].at > GAP) all.push([]);
        all.at(-1).push(one);
        return all;
      }, []);
      line.setAttribute("d", runs.map((run) => `M${run.map(place).join("L")}${run.length === 1 ? "h1" : ""}`).join(""));
      area.setAttribute("d", runs.map((run) => `M${place(run[0]).split(" ")[0]} ${HEIGHT}L${run.map(place).join("L")}V${HEIGHT}Z`).join(""));
      const values = points.map((one) => one.load);
      picture.setAttribute("aria-label", `Load of ${name} in the last ${duration(SPAN / 1000)}: now ${score(load)}, between ${score(Math.min(...values))} and ${score(Math.max(...values))}`);
      picture.dataset.level = load >= 0.9 ? "high" : load >= 0.7 ? "raised" : "";
      setText(now, score(load));
      setText(raw, `CPU ${percent(Math.round(cpu))}`);
      raw.title = `The last heartbeat alone: ${score(last)}`;
    },
  };
}

function nameCell() {
  const name = h("strong");
  const here = h("span", { class: "pill" }, "this node");
  const place = h("div", { class: "dim small" });
  const more = h("div", { class: "dim small" });
  const why = explainCell();
  return {
    element: [h("div", { class: "row" }, name, here), place, more, why.element],
    set({ server_id: id, here: own, url, zone, version, explain }) {
      why.set({ explain });
      setText(name, id);
      here.hidden = !own;
      setText(place, url.replace(/^http:\/\//, ""));
      setText(more, [zone && `zone ${zone}`, `version ${version}`].filter(Boolean).join(", "));
    },
  };
}

function stateCell() {
  const pill = h("span", { class: "pill" });
  const heard = h("div", { class: "dim small num" });
  return {
    element: [pill, heard],
    set(server) {
      const [word, look] = stateOf(server);
      setText(pill, word);
      pill.className = `pill ${look}`;
      heard.title = server.here ? "" : "When it was last heard of";
      setText(heard, server.here ? "" : `${duration(server.last_seen_ms / 1000)} ago`);
    },
  };
}

function breakerCell() {
  const pill = h("span", { class: "pill" });
  const wait = h("div", { class: "dim small num" });
  return {
    element: [pill, wait],
    set({ here, breaker, breaker_reopens_ms: ms }) {
      const [look, meaning] = BREAKERS[breaker] ?? ["", ""];
      setText(pill, here ? "–" : breaker);
      pill.className = here ? "dim" : `pill ${look}`;
      pill.title = here ? "" : meaning;
      setText(wait, ms === null ? "" : `for ${duration(Math.ceil(ms / 1000))}`);
    },
  };
}

/** can(scope). changed(): a node was told something. */
export function nodeTable({ history, can, changed }) {
  const trouble = h("div");

  async function drain({ server_id: node, in_flight: open, polls }) {
    const has = `It works on ${whole(open)} requests and has ${whole(polls)} pops waiting.`;
    const text = `It takes nothing new, hands over the pops that wait there, finishes what it has and stops. ${has} The others take over.`;
    if (!(await confirmDialog({ title: `Drain “${node}”?`, text, action: "Drain node" }))) return;
    try {
      await api.post("/api/v1/cluster/drain", { node });
      trouble.replaceChildren();
      announce(`${node} drains`);
      await changed();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem));
    }
  }

  function actionCell() {
    let now = null;
    const button = h("button", { type: "button", class: "quiet danger", onclick: () => drain(now) }, "Drain");
    return {
      element: button,
      set(row) {
        now = row;
        button.hidden = row.draining;
        button.setAttribute("aria-label", `Drain ${row.server_id}`);
      },
    };
  }

  const list = liveTable({
    label: "Nodes by name", key: (one) => one.server_id, empty: "No node is known yet.",
    rowClass: ({ healthy }) => (healthy ? "" : "faded"),
    columns: [
      { title: "Node", class: "free", make: nameCell },
      { title: "State", class: "nowrap", make: stateCell },
      { title: "Load", class: "nowrap", make: () => spark(history) },
      { title: "In flight", class: "nowrap num", make: () => pair((one) => whole(one.in_flight), (one) => `${whole(one.polls)} polls`) },
      { title: "Breaker", class: "nowrap", make: breakerCell },
      { title: "Keys", class: "nowrap num", text: (one) => whole(one.affinity_entries) },
      { title: "Forwarded", class: "nowrap num", make: () => pair((one) => (one.here ? "–" : whole(one.forwarded)), (one) => (one.fell_back ? `${whole(one.fell_back)} fell back` : "")) },
      { title: "Hop", class: "nowrap num", make: () => pair((one) => hop(one.hop_p50_us), (one) => (one.hop_p99_us === null ? "" : `p99 ${hop(one.hop_p99_us)}`)) },
      ...(can("admin") ? [{ title: "Actions", class: "last", make: actionCell }] : []),
    ],
  });

  return {
    elements: [h("h2", null, "Nodes"), trouble, h("div", { class: "card scroll-x nodes-box", tabindex: "0", role: "group", "aria-label": "Nodes" }, list.element)],
    set: (servers) => list.set(servers),
  };
}

const hop = (us) => millis(us === null ? null : us / 1000);
