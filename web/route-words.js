// What the words of routes mean, and how their seconds are counted, for all parts of their page.

import { h, setText } from "./dom.js";
import { link } from "./router.js";

const PATH = "/api/v1/routes";
export const routePath = (name, rest = "") => `${PATH}/${encodeURIComponent(name)}${rest}`;
export const routeLink = (name) => link("/routes", { route: name });

/** Whether an upstream is used, and what that means. The worst come last. */
export const STANDINGS = {
  ready: "gets its whole share",
  warming: "came back a moment ago, and its share grows",
  trial: "gets a few requests, to see how it goes",
  out: "failed too often, and is left alone for a while",
  down: "does not pass its checks",
};

/** Why a request belongs to its route. */
export const MATCHED = {
  "exact-host": "the host is named exactly, and no longer prefix fits the path",
  "wildcard-host": "the host is below the narrowest * that fits, and no longer prefix fits the path",
  "any-host": "no narrower host fits, and this is for all of them",
  "no-route": "no host and path fits; it would be taken for a session",
};

/** Why an upstream gets the request. */
export const CHOSEN = {
  "least-loaded": "it has the least to do for its weight, or shares that place and it is its turn",
  "trials-turn": "one request in ten goes to one on trial, and this is one",
  "only-trials-left": "nobody serves as usual, and it is on trial",
  "tried-before": "all others were tried, are down or have no room",
  "last-resort": "all that have not failed this request are out or down, and it is the nearest to a trial",
  "nobody-has-room": "all are out, down or on trial, and have as many requests waiting as they may",
  "no-upstreams": "there is none",
};

/** Why somebody was not chosen. */
export const REJECTED = {
  "path-differs": "its prefix is not how the path begins, segment by segment",
  "no-prefix-fits": "the host fits, and none of its prefixes",
  "not-its-turn": "as good as the one chosen; they take turns",
  "more-loaded": "has more to do for its weight",
  "trials-turn": "serves, and this request is for one on trial",
  "trial-full": "on trial, with as many requests waiting as it may have",
  "last-resort-full": "not well, with as many requests waiting as it may have",
  "later-or-more-waiting": "not well either, and its trial is later or more wait for it",
  "tried-before": "this request has been there",
  "on-trial": "on trial, and others serve",
  out: "left alone for a while, because it failed too often",
  down: "does not pass its checks",
};

/** What is answered without asking an upstream. */
export const HERE = {
  redirect: "the client is sent to https (308)",
  maintenance: "the route is closed for maintenance, and its page is sent",
  busy: "503 E_UPSTREAMS_BUSY, because no upstream has room",
};

/** Kinds of events, and how much they matter. */
export const KINDS = { error: "error", refused: "warn", "rate-limited": "warn", breaker: "warn", health: "warn", certificate: "warn", reload: "info" };

/** Whose requests it is for. */
export const place = ({ host, path }) => `${host}${path}`;

export const sourceText = ({ from, place: line, version }) => (from === "file" ? line.split("/").at(-1) : `API, version ${version}`);

/** "2 ready, 1 out", in the order of STANDINGS. */
export function standingsText(upstreams) {
  const counts = Object.keys(STANDINGS).map((one) => [one, upstreams.filter(({ standing }) => standing === one).length]);
  return counts.filter(([, number]) => number).map(([one, number]) => `${number} ${one}`).join(", ");
}

export const isAway = ({ standing }) => standing === "out" || standing === "down";

/** A standing as a coloured word. */
export function standingWord() {
  const element = h("span", { class: "standing" });
  return {
    element,
    set({ standing }) {
      if (element.dataset.standing === standing) return;
      element.dataset.standing = standing;
      element.title = STANDINGS[standing] ?? "";
      setText(element, standing);
    },
  };
}

// What is called "now" is the mean of so many seconds: one alone jumps about.
const NOW_MS = 3000;

/** Seconds of a route as they come: each is kept once, for `span` milliseconds. */
export function memory(span) {
  let kept = [];
  return {
    see(seconds, at) {
      const last = kept.at(-1)?.at_ms ?? 0;
      kept = [...kept, ...seconds.filter((one) => one.at_ms > last)].filter((one) => one.at_ms > at - span);
    },
    all: () => kept,
    /** Rates of the last moments, and the durations of the newest second in which there was a request. */
    now(at) {
      const late = kept.filter((one) => one.at_ms > at - NOW_MS);
      const mean = (key) => (late.reduce((sum, one) => sum + one[key], 0) * 1000) / NOW_MS;
      return { requests: mean("requests"), errors: mean("errors"), refused: mean("refused"), p50: late.at(-1)?.p50_ms ?? null, p99: late.at(-1)?.p99_ms ?? null };
    },
  };
}

/** The node's time, which the reader's may differ from. Before it was heard, that of the newest second is the best there is. */
export function nodeClock() {
  let ahead = null;
  return {
    hear(at) {
      ahead = at - Date.now();
    },
    now: (views) => (ahead === null ? Math.max(0, ...views.map((one) => one?.seconds.at(-1)?.at_ms ?? 0)) : Date.now() + ahead),
  };
}
