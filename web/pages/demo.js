// Demo: the story of a demo so far, what comes next, and where each can be seen.

import { api } from "../api.js";
import { h, setText } from "../dom.js";
import { dateTime, when } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead, problemNotice } from "../notice.js";

export const page = { "path": "/demo", "title": "Demo", "order": 1, "needs": "read", "icon": "M8 5l11 7-11 7z" };

const PLACES = { "/": "Overview", "/cluster": "Cluster", "/polls": "Polls", "/pools": "Pools", "/sessions": "Sessions", "/monitors": "Monitors", "/queues": "Queues" };
const ALWAYS = [
  ["/queues", "Queues", "Producers push to four queues with skewed keys, two groups consume."],
  ["/sessions", "Sessions", "Workers serve sessions, wear out and restart, one at a time."],
  ["/polls", "Polls", "Every endpoint is polled by exactly one node; some fail now and then."],
  ["/monitors", "Monitors", "Monitors of four accounts measure servers; the best ones are active."],
  ["/pools", "Pools", "Background tasks run in four tiers."],
  ["/cluster", "Cluster", "Three nodes are one server."],
];

export function mount(root, { signal }) {
  const trouble = h("div");
  const next = nextCard();
  const nodes = h("ul", { class: "stores" });
  const story = h("ol", { class: "demo-story" }, h("li", null, h("span", { class: "ghost" })));
  let version = null;

  root.append(
    pageHead("Demo", "Three nodes, and a fleet's life around them. Things happen here, and this page says what came of them and why."),
    trouble,
    h("div", { class: "pair" },
      next.element,
      h("section", { class: "card", "aria-labelledby": "demo-nodes" }, h("h2", { id: "demo-nodes" }, "Nodes"), nodes)),
    h("section", { class: "card", "aria-labelledby": "demo-story" }, h("h2", { id: "demo-story" }, "The story so far"), story),
    h("section", { class: "card", "aria-labelledby": "demo-always" }, h("h2", { id: "demo-always" }, "What goes on all the time"),
      h("ul", { class: "demo-always" }, ALWAYS.map(([path, title, text]) => h("li", null, h("a", { href: `#${path}` }, title), h("span", { class: "dim" }, text))))));

  function show(told) {
    version = told.version;
    next.set(told);
    nodes.replaceChildren(...told.nodes.map((node) => h("li", null,
      h("div", null, h("strong", null, node.name), h("a", { class: "small", href: `${node.url}#/demo` }, node.url)),
      h("div", { class: "store-state" }, h("span", { class: node.up ? "pill good" : "pill bad" }, node.up ? "runs" : "killed")))));
    story.replaceChildren(...[...told.events].reverse().map(eventItem));
    if (told.events.length === 0) story.append(h("li", { class: "dim" }, "Nothing has happened yet. The first thing does within a few seconds."));
  }

  async function load() {
    try {
      const told = await api.get("/api/v1/demo", { signal });
      trouble.replaceChildren();
      show(told);
    } catch (problem) {
      if (problem.silent) return;
      const none = problem.code === "E_DEMO_NONE";
      trouble.replaceChildren(none ? notice("info", "No demo runs here", "Start one with `skep demo`; it brings nodes of its own.") : problemNotice(problem, load));
    }
  }

  const stop = listen("/api/v1/live", "demo", (news) => { if (news.version !== version) load(); }, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    next.destroy();
  };
}

function eventItem(event) {
  const place = PLACES[event.page];
  return h("li", { class: event.over ? null : "now" },
    h("div", { class: "demo-head" },
      h("span", { class: "dim num small" }, when(event.at, dateTime(event.at, true).slice(11, 19))),
      h("strong", null, event.title),
      !event.over && h("span", { class: "pill" }, "going on")),
    event.outcome.map((text) => h("p", null, text)),
    event.because.map((text) => h("p", { class: "dim" }, "because ", text)),
    place && h("p", { class: "small" }, h("a", { href: `#${event.page}` }, `See it in ${place}`)));
}

// Its clock goes on between two chapters of the story.
function nextCard() {
  const head = h("h2", { id: "demo-next" }, "What comes next");
  const title = h("p", { class: "demo-next" }, "–");
  const time = h("p", { class: "dim num" }, "\u00a0");
  const place = h("p", { class: "small" }, "\u00a0");
  let told = null;
  const tick = () => {
    if (!told) return;
    const left = (at) => Math.max(0, Math.round((at - Date.now()) / 1000));
    const ends = told.ends_at ? `; the demo ends in ${left(told.ends_at)} s` : "";
    const words = told.next ? `in ${left(told.next.at)} s` : "now";
    setText(time, `${words}${ends}`);
  };
  const timer = setInterval(tick, 1000);
  return {
    element: h("section", { class: "card", "aria-labelledby": "demo-next" }, head, title, time, place),
    set(story) {
      told = story;
      const current = story.events.at(-1);
      setText(head, story.next ? "What comes next" : "What goes on now");
      setText(title, story.next ? story.next.title : current && !current.over ? current.title : "the end");
      const path = story.next?.page ?? current?.page;
      place.replaceChildren(PLACES[path] ? h("a", { href: `#${path}` }, `Watch it in ${PLACES[path]}`) : "\u00a0");
      tick();
    },
    destroy: () => clearInterval(timer),
  };
}
