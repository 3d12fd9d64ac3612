// The command that explains a decision, as text and to be copied: the same wherever a decision is shown.

import { copyButton } from "./copy.js";
import { h, setText } from "./dom.js";

/** As a shell takes it. */
const command = (id) => `skep explain ${/^[\w.:/@,%+=-]+$/.test(id) ? id : `'${id.replaceAll("'", "'\\''")}'`}`;

/** id: as the API gives it. Nothing where there is none. */
export function explainOf(id) {
  return id ? explainCell(() => id, id).element : null;
}

/** The same for rows that change. pick(row): its id. */
export function explainCell(pick = (row) => row.explain, first = null) {
  let now = "";
  const text = h("code");
  const copy = copyButton(() => now);
  const element = h("span", { class: "command" }, text, copy);
  const set = (row) => {
    const id = pick(row);
    element.hidden = !id;
    if (!id || now === (now = command(id))) return;
    setText(text, now);
    copy.setAttribute("aria-label", `Copy ${now}`);
  };
  set(first ?? {});
  return { element, set };
}
