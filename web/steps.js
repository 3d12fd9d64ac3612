// What to do where there is nothing yet: steps with commands to copy.

import { copyButton } from "./copy.js";
import { h } from "./dom.js";

/** steps: [{ title, command, text }]; text may have elements in it. Hidden until somebody shows it. */
export function steps({ title, text, list }) {
  const step = (one) => h("li", { class: "stack" }, h("h3", null, one.title),
    h("div", { class: "curl" }, h("pre", null, one.command), copyButton(() => one.command)), one.text && h("p", { class: "dim small" }, one.text));
  const element = h("section", { class: "card stack begin" }, h("h2", null, title), text && h("p", { class: "dim" }, text), h("ol", { class: "stack" }, list.map(step)));
  element.hidden = true;
  return element;
}

/** What an empty table says, with a command that changes it. */
export const emptyWith = (text, command) => h("div", { class: "stack" }, h("p", null, text), h("div", { class: "curl" }, h("pre", null, command), copyButton(() => command)));
