// Boxes that say something: a hint, a warning, or what went wrong and how to go on.

import { h, inline, setText } from "./dom.js";
import { about } from "./tip.js";

/** kind: "info", "warn" or "bad". */
export function notice(kind, title, detail, ...actions) {
  return h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null },
    h("div", null, h("strong", null, title), detail && h("p", null, inline(detail))),
    actions.length > 0 && h("div", { class: "row" }, actions));
}

/** A Problem of api.js, with a way to try again where there is one. */
export function problemNotice(problem, retry) {
  const title = problem.title ?? "Something went wrong in this page";
  const detail = problem.detail ?? problem.message;
  const code = problem.code && h("code", { class: "dim" }, problem.code);
  return notice("bad", title, detail, ...[code, retry && h("button", { type: "button", onclick: retry }, "Try again")].filter(Boolean));
}

/** Shown on a node that has no keys yet. */
export function openHint(action) {
  return notice("warn", "This node is open", "It has no keys yet, so anyone on this machine may do anything. Create a key to change that.", ...(action ? [action] : []));
}

/** The head of a page: its title, a line below it, and what can be done. */
export function pageHead(title, line, ...actions) {
  return h("div", { class: "page-head" },
    h("div", null, h("h1", { tabindex: "-1" }, title), line && h("p", { class: "dim" }, line)),
    actions.length > 0 && h("div", { class: "row" }, actions));
}

/** One number in a box of its own. Its parts are there from the start and only their text changes. */
export function tile(label) {
  const value = h("p", { class: "tile-value" }, "–");
  const more = h("p", { class: "tile-more" }, "\u00a0");
  return {
    element: h("section", { class: "card tile", "aria-label": label }, h("h2", null, about(label)), value, more),
    set(text, below, bad = false) {
      setText(value, text);
      setText(more, below);
      more.classList.toggle("bad", bad);
    },
  };
}
