// What is wrong, as one list over all parts: each a sentence that leads to where it can be seen.

import { h, setText } from "./dom.js";
import { dateTime, duration } from "./format.js";
import { notice } from "./notice.js";
import { link } from "./router.js";

// So many are shown before somebody wants to see all.
const SHOWN = 6;
const WORDS = { bad: "Does not work", warn: "Worth a look" };

/** Where a trouble is seen. */
export function placeOf({ kind, about, within }) {
  const [part, name] = about?.includes(":") ? about.split(/:(.*)/s) : [null, about];
  const places = {
    store: ["/", { part: "stores" }], certificate: ["/", { part: "node" }], standing: ["/polls", {}],
    node: ["/cluster", {}], breaker: ["/cluster", {}],
    lag: ["/queues", about && { queue: about, tab: "groups", group: within }],
    "dead-letters": about === null ? ["/dead", {}] : ["/queues", { queue: about, tab: "dead" }],
    switch: ["/queues", {}],
    endpoint: ["/polls", about ? { id: about } : { state: "failing" }],
    "below-target": ["/monitors", { view: "servers", state: "below_target" }],
    workers: ["/sessions", { kind: about }],
    errors: ["/routes", { route: about }],
  };
  if (part === "routes") return link("/routes", { route: name });
  if (part === "sessions") return link("/sessions", { kind: name });
  const [path, params] = places[kind] ?? ["/pools", {}];
  return link(path, params ?? {});
}

/** The list. Its head is there from the start; only what has changed is drawn anew. */
export function troubleList() {
  let all = false;
  let list = [];
  let drawn = "";
  let times = [];
  const title = h("span", { role: "status" }, "Looking…");
  const items = h("ol", { class: "troubles" });
  const more = h("button", { type: "button", class: "quiet", onclick: () => {
    all = true;
    draw();
  } });
  more.hidden = true;
  const unknown = h("div", { class: "stack" });
  const element = h("section", { class: "card stack trouble-card", "aria-labelledby": "troubles-head" }, h("h2", { id: "troubles-head" }, title), items, more, unknown);

  function item(one) {
    const time = h("span", { class: "dim small num trouble-time" });
    times.push([time, one]);
    return h("li", { "data-severity": one.severity }, h("span", { class: "trouble-mark", role: "img", "aria-label": WORDS[one.severity] ?? one.severity, title: WORDS[one.severity] }), h("a", { href: placeOf(one) }, one.text), time);
  }

  function draw() {
    const shown = all ? list : list.slice(0, SHOWN);
    const now = JSON.stringify(shown.map(({ severity, text, kind, about }) => [severity, text, kind, about]));
    if (now !== drawn) {
      drawn = now;
      times = [];
      items.replaceChildren(...shown.map(item));
    }
    for (const [place, one] of times) {
      const begun = one.since_ms ?? one.seen_ms;
      setText(place, begun ? `${one.since_ms ? "for" : "seen for"} ${duration(Math.max(1, Math.round((Date.now() - begun) / 1000))).split(" ").slice(0, 2).join(" ")}` : "");
      if (begun) place.title = `since ${dateTime(begun, true)}`;
    }
    items.hidden = !list.length;
    more.hidden = all || list.length <= SHOWN;
    setText(more, `Show all ${list.length}`);
  }

  return {
    element,
    set({ troubles, unknown: parts = [] }) {
      list = troubles;
      const sum = (severity) => list.filter((one) => one.severity === severity).reduce((total, one) => total + one.count, 0);
      const [bad, warn] = [sum("bad"), sum("warn")];
      const words = [bad && `${bad} ${bad === 1 ? "thing does" : "things do"} not work`, warn && `${warn} ${warn === 1 ? "is" : "are"} worth a look`].filter(Boolean).join(", ");
      setText(title, words || (parts.length ? "Not everything could be looked at" : "Nothing is wrong"));
      element.dataset.state = bad ? "bad" : warn || parts.length ? "warn" : "well";
      draw();
      const said = parts.map(({ part, why }) => `${part}: ${why}`).join("\n");
      if (unknown.dataset.said === said) return;
      unknown.dataset.said = said;
      unknown.replaceChildren(...parts.map(({ part, why }) => notice("warn", `Nothing is known about ${part}`, why)));
    },
  };
}
