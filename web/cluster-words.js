// What a cluster's answers mean, in words.

const NOBODY = "__QUEUE_MODE__";

/** Nodes and loads have two digits. */
export const score = (value) => (typeof value === "number" ? value.toFixed(2) : "–");

/** A key, as people know its group. */
export const keyText = (key) => (key.endsWith(`:${NOBODY}`) ? `${key.slice(0, -NOBODY.length)}(no group)` : key);

/** How a node is: a word, and how it looks. */
export function stateOf({ alive, draining, healthy }) {
  if (!alive) return draining ? ["left", "warn"] : ["not heard", "bad"];
  if (draining) return ["draining", "warn"];
  return healthy ? ["healthy", "good"] : ["failing", "bad"];
}

/** Why a request goes where it goes. */
export const RULES = {
  alone: "there is no other node",
  "nobody-left": "no other node can take it",
  owner: "it owns the key by its name",
  moved: "the key was moved there",
  "overflow-here": "the owner has too much to do, and this node is as good as any",
  "overflow-next": "the owner has too much to do, and it is the next that has room",
  "owner-least-loaded": "everybody has too much to do, the owner least",
  "consumers-here": "this node has consumers of the queue",
  "consumers-there": "it has consumers of the queue, and this node has none",
  "no-consumers": "nobody has consumers of the queue, so it is done where it came in",
  "consumers-overloaded": "the nodes with consumers have too much to do",
  "here-draining": "this node is draining",
};

/** Why a request does not go to a node. */
export const REJECTED = {
  dead: "it is not heard of",
  draining: "it takes nothing new",
  "breaker-open": "it failed, and gets no requests for a while",
  tried: "it was tried",
  owner: "it owns the key; see the rule",
  overflows: "it owns the key and has too much to do",
  "further-in-ranking": "others come first for this key",
  "no-consumers": "it has no consumers of the queue",
  "fewer-consumers": "it has fewer consumers of the queue",
  "as-good": "it would have been as good",
};

/** What a breaker does. */
export const BREAKERS = {
  closed: ["", "It gets requests"],
  open: ["bad", "It has failed three times in a row and gets no requests for a while"],
  "half-open": ["warn", "It gets one request, to see what comes of it"],
};
