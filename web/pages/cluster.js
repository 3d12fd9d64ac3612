// Cluster: the nodes as one. How they are loaded, who forwards to whom, which keys belong where, and what has moved.

import { api } from "../api.js";
import { explainForm } from "../cluster-explain.js";
import { flowMatrix } from "../cluster-flows.js";
import { affinityMap, moveList } from "../cluster-map.js";
import { loads, nodeTable } from "../cluster-nodes.js";
import { score } from "../cluster-words.js";
import { copyButton } from "../copy.js";
import { h, setText } from "../dom.js";
import { rate, whole } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead, problemNotice, tile } from "../notice.js";

export const page = { "path": "/cluster", "title": "Cluster", "order": 15, "needs": "read", "icon": "M12 2.5l4 2.3v4.4l-4 2.3-4-2.3V4.8zM6 12.5l4 2.3v4.4l-4 2.3-4-2.3v-4.4zM18 12.5l4 2.3v4.4l-4 2.3-4-2.3v-4.4z" };

// Keys and peers are asked for every so many beats.
const KEYS_EVERY = 3;
const STATUS_EVERY = 5;
const START = [6632, 6642, 6652].map((port, index) => `skep serve --database postgres://skep@127.0.0.1/skep --data node-${index + 1} --listen 127.0.0.1:${port} --set cluster.listen=127.0.0.1:${port + 2}`);

export function mount(root, { signal, params, noteParams, can }) {
  let beats = 0;
  let asking = false;
  let before = null;
  const seen = loads();
  const trouble = h("div");
  const peers = h("div", { class: "stack" });
  const begin = beginning();
  const tiles = { nodes: tile("Nodes"), balance: tile("Imbalance"), forwarded: tile("Forwarded"), fellBack: tile("Fell back"), moves: tile("Moves") };
  const nodes = nodeTable({ history: seen.of, can, changed: load });
  const flows = flowMatrix();
  const explain = explainForm({ signal, key: params.get("key") ?? "", note: (key) => noteParams({ key }) });
  const map = affinityMap({ signal, open: explain.ask });
  const moves = moveList({ signal, fresh: map.load });
  const part = takingPart();
  const among = h("div", { class: "column" }, flows.element, map.element, moves.element);
  const ghost = h("span", { class: "ghost" });
  among.hidden = true;
  root.append(
    pageHead("Cluster", "Any node takes any request, and the right node does the work."),
    trouble, peers, ghost, begin,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    ...nodes.elements, among, h("div", { class: "pair" }, explain.element, part.element));

  function show(answer) {
    const at = Date.now();
    const { servers, forwarding, moves: moved } = answer;
    const alone = forwarding === "alone";
    ghost.hidden = true;
    begin.hidden = !alone;
    among.hidden = alone && servers.length < 2;
    seen.hear(at, servers);
    const healthy = servers.filter((one) => one.healthy).length;
    const sum = (pick) => servers.reduce((total, one) => total + pick(one), 0);
    const now = { at, forwarded: sum((one) => one.forwarded), fellBack: sum((one) => one.fell_back) };
    const perSecond = (key) => (before && at > before.at ? Math.max(0, now[key] - before[key]) / ((at - before.at) / 1000) : 0);
    tiles.nodes.set(whole(servers.length), healthy === servers.length ? "all healthy" : `${whole(servers.length - healthy)} not healthy`, healthy < servers.length);
    tiles.balance.set(score(answer.imbalance_score), answer.balanced ? "balanced" : "not balanced", !answer.balanced);
    tiles.forwarded.set(rate(perSecond("forwarded")), { on: `${whole(now.forwarded)} in all`, off: "forwarding is off", alone: "nobody to forward to" }[forwarding]);
    tiles.fellBack.set(whole(now.fellBack), perSecond("fellBack") ? `${rate(perSecond("fellBack"))} now` : "none just now", perSecond("fellBack") > 0);
    tiles.moves.set(whole(moved.last_minute), `in a minute; ${whole(moved.migrations + moved.breaks)} in all`);
    before = now;
    nodes.set(servers);
    flows.set(answer, at);
    map.nodes(servers.map((one) => one.server_id));
  }

  async function load() {
    if (asking) return;
    asking = true;
    try {
      show(await api.get("/api/v1/cluster/balance", { signal }));
      trouble.replaceChildren();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
    asking = false;
  }

  async function status() {
    try {
      const answer = await api.get("/api/v1/cluster/status", { signal });
      part.set(answer);
      const lost = answer.peers.filter((one) => one.error);
      const text = lost.map(({ address, error }) => `${address}: ${error}`).join("; ");
      if (peers.dataset.said === text) return;
      peers.dataset.said = text;
      peers.replaceChildren(...(text ? [notice("warn", "Some peers cannot be found", text)] : []));
    } catch {
      // The question for the nodes tells what is wrong.
    }
  }

  function beat() {
    if (document.hidden) return;
    beats += 1;
    load();
    moves.load();
    if (beats % KEYS_EVERY === 0) map.load();
    if (beats % STATUS_EVERY === 0) status();
  }

  function start(again) {
    if (again) moves.reset();
    load();
    status();
    map.load();
    moves.load();
  }

  const stop = listen("/api/v1/live", "overview", beat, { onOpen: (again) => again && start(true) });
  start(false);
  if (params.get("key")) explain.ask(params.get("key"));
  return () => {
    stop();
    map.destroy();
  };
}

/** How this node takes part. */
function takingPart() {
  const values = {};
  const fact = (key, name) => h("div", null, h("dt", null, name), (values[key] = h("dd", { class: "num" }, "–")));
  const element = h("section", { class: "card stack taking-part" }, h("h2", null, "How this node takes part"),
    h("dl", { class: "facts" }, fact("udp", "Hears at"), fact("signed", "Signed"), fact("writes", "Writes"), fact("peers", "Peers"), fact("beats", "Heartbeats"), fact("refused", "Refused"), fact("wakes", "Wake-ups"), fact("presence", "Consumers")));
  return {
    element,
    set({ udp, signed, writes, peers, heartbeats, wakes, presence_total: queues }) {
      const { forged, replayed, malformed, version, stale, crowded } = heartbeats.rejected;
      setText(values.udp, udp ?? "nowhere: it is alone");
      setText(values.signed, signed ? "yes, with the secret" : "no, there is no secret");
      setText(values.writes, writes === "here" ? "are done where they come in" : "go where consumers are");
      setText(values.peers, peers.map((one) => one.name ?? one.address).join(", ") || "none");
      setText(values.beats, `${whole(heartbeats.sent)} sent, ${whole(heartbeats.unsent)} unsent, ${whole(heartbeats.received)} received`);
      setText(values.refused, `${whole(forged)} forged, ${whole(replayed)} replayed, ${whole(malformed)} malformed, ${whole(version)} of another version, ${whole(stale)} stale, ${whole(crowded)} crowded`);
      values.refused.classList.toggle("bad", forged > 0);
      setText(values.wakes, `${whole(wakes.sent)} sent, ${whole(wakes.received)} received, ${whole(wakes.dropped)} dropped`);
      setText(values.presence, queues === 1 ? "of 1 queue" : `of ${whole(queues)} queues`);
    },
  };
}

/** What to do where there is one node. */
function beginning() {
  const element = h("section", { class: "card stack ways" }, h("h2", null, "This node is alone"),
    h("p", { class: "dim" }, "Start more nodes with the same database, and put any load balancer, or none, in front: each takes every request, and passes it on where another does it cheaper. Three on one machine:"),
    h("ul", { class: "stack" }, START.map((line) => h("li", null, h("div", { class: "curl" }, h("pre", null, line), copyButton(() => line, "Copy"))))),
    h("p", { class: "dim small" }, "They find each other through the database. On several machines each also needs ", h("code", null, "cluster.listen=0.0.0.0:6634"), " and the same ", h("code", null, "cluster.secret"), "."));
  element.hidden = true;
  return element;
}
