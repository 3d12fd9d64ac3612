// What can be done with routes: closing and opening one, and reading those of the file again.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, setText } from "./dom.js";
import { notice, problemNotice } from "./notice.js";
import { routePath } from "./route-words.js";
import { many } from "./session-words.js";

const NAMED = 20;

const closing = (name) => ({
  title: `Close “${name}” for maintenance?`, action: "Close route",
  text: "On all nodes, clients get its maintenance page and no upstream is asked, until it is opened again. Requests on their way go on.",
});

/** Closes a route or opens it again. done(answer): it is so. failed(problem): it is not. */
export function maintenanceButton({ name, done, failed }) {
  let closed = false;
  let busy = false;
  const button = h("button", { type: "button", onclick: async () => {
    if (busy || (!closed && !(await confirmDialog(closing(name))))) return;
    busy = true;
    try {
      const answer = await api.post(routePath(name, "/maintenance"), { enabled: !closed });
      announce(closed ? `${name} is open again` : `${name} is closed`);
      done(answer);
    } catch (problem) {
      if (!problem.silent) failed(problem);
    }
    busy = false;
  } });
  button.hidden = true;
  return {
    element: button,
    /** Routes of a file are closed there. */
    set(from, now) {
      closed = now;
      button.hidden = from !== "api";
      setText(button, closed ? "End maintenance" : "Maintenance");
      button.setAttribute("aria-label", closed ? `End maintenance of ${name}` : `Close ${name} for maintenance`);
    },
  };
}

/** What reading the file again has changed, in words. */
function changes({ routes, added, changed, removed }) {
  const parts = [["Added", added], ["Changed", changed], ["Removed", removed]].filter(([, names]) => names.length);
  const told = parts.map(([verb, names]) => `${verb}: ${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${names.length - NAMED} more` : ""}. `);
  return `${told.join("") || "Nothing has changed. "}${many(routes, "route")} in use.`;
}

/** Reads the routes of the file again, and says what came of it in `place`. */
export function reloadButton({ place, done }) {
  return h("button", { type: "button", title: "Reads the routes of this node's file again", onclick: async () => {
    try {
      const answer = await api.post("/api/v1/routes/reload");
      const text = changes(answer);
      place.replaceChildren(notice("info", "The file was read again", text, h("button", { type: "button", class: "quiet", onclick: () => place.replaceChildren() }, "Dismiss")));
      announce(text);
      done();
    } catch (problem) {
      if (problem.silent) return;
      const told = problemNotice(problem.flaws?.length ? { ...problem, detail: "Nothing has changed; what was served before is served on." } : problem);
      if (problem.flaws?.length) told.firstChild.append(h("ul", { class: "flaws mono" }, problem.flaws.map(({ detail }) => h("li", null, detail))));
      place.replaceChildren(told);
    }
  } }, "Reload");
}
