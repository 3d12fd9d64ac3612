// Dead letters of all queues: what was given up and why.

import { h } from "../dom.js";
import { pageHead } from "../notice.js";
import { deadLetters } from "../queue-dead.js";
import { maintenance } from "../queue-switches.js";
import { sayings } from "../queue-words.js";

export const page = { "path": "/dead", "title": "Dead letters", "order": 52, "needs": "read", "icon": "M4 6h16v12H4zM4 7l8 6 8-6M15 15l4 4M19 15l-4 4" };

export function mount(root, { signal, params, noteParams, can }) {
  const said = sayings();
  const { banner } = maintenance({ signal, can, said });
  const list = deadLetters({ signal, params, note: noteParams, can, said });
  root.append(pageHead("Dead letters", "Messages that were given up, of all queues, newest first."), banner, said.element, h("div", { class: "column" }, list.element));
}
