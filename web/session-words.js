// What the words of sessions mean, for all parts of their page.

import { h, setText } from "./dom.js";
import { whole } from "./format.js";

/** Where a worker stands, and what that means. The order is that of the bar. */
export const STANDINGS = {
  ready: "has a free slot",
  due: "has a free slot and is nearly worn out: it is taken only if nobody is ready",
  full: "all its slots are taken",
  held: "is worn out and takes nothing; it waits for its turn to restart",
  draining: "may restart, and lets its last sessions end first",
  restarting: "restarts now",
  drained: "an operator keeps sessions away from it",
  suspect: "did not answer; it is asked again before it gets anything",
  down: "its program does not run",
  lost: "has not been heard of for too long",
  removed: "was sent away and has not heard of that yet",
};

/** They are named even if nobody stands there. */
export const USUAL = ["ready", "due", "full", "held", "draining", "restarting"];

export const POLICIES = {
  budgeted: "The least loaded worker, then the longest serving; never more than the budget are out at once.",
  "lifetime-first": "The longest serving worker below a margin; whoever reaches the limit goes, however many that are.",
  "least-loaded": "The least loaded worker; whoever reaches the limit goes, however many that are.",
};

/** Why a worker was chosen. */
export const CHOSEN = {
  "least-loaded-then-highest-lifetime": "the least loaded, and of those the longest serving",
  "only-due-workers-free": "only nearly worn out ones were free, and it was the furthest from its limit",
  "highest-lifetime": "the longest serving below the margin",
  "highest-lifetime-within-margin": "nobody below the margin was free, and of the others it was the longest serving",
  "least-loaded": "the least loaded",
};

/** Why a session got nobody. */
export const REFUSED = {
  "no-workers": "there was no worker of its kind", "no-match": "no worker could ever do", busy: "everybody was busy, and it would not wait",
  "line-full": "everybody was busy, and the line was full", "waited-too-long": "nobody became free in time", "key-limit": "its key had as many sessions as it may",
  ended: "it was ended while it waited", draining: "this node was stopping", "table-away": "nodes could not agree, because their store was away",
};

/** Why somebody was not chosen. */
export const REJECTED = {
  ...STANDINGS,
  "does-not-fit": "lacks a label that was asked for, or has another version",
  due: "nearly worn out, and others were free",
  "within-margin": "nearly worn out, and others were free",
  "nearer-to-its-limit": "nearly worn out too, and nearer to its limit",
  "more-loaded-or-lower-lifetime": "could have had it; it has more to do, or has served less",
  "lower-lifetime-or-more-active": "could have had it; it has served less, or has more to do",
  "more-loaded": "could have had it; it has more to do",
};

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

export const many = (count, one, more = `${one}s`) => `${whole(count)} ${count === 1 ? one : more}`;
