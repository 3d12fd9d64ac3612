// Modal dialogs on the browser's own <dialog>: it holds the focus, closes on Escape and gives the focus back.

import { freshId, h } from "./dom.js";

/** sticky: survives a change of page, for things that are shown only once. Returns { element, close }. */
export function openDialog({ title, content, sticky = false, onClose = () => {} }) {
  const id = freshId("dialog");
  const element = h("dialog", { class: "dialog", "aria-labelledby": id }, h("h2", { id }, title), content);
  if (sticky) element.dataset.sticky = "";
  element.addEventListener("close", () => {
    element.remove();
    onClose(element.returnValue);
  });
  document.body.append(element);
  element.showModal();
  return { element, close: (value) => element.close(value) };
}

/** Asks before something that cannot be undone. Resolves to true when the answer is yes. */
export function confirmDialog({ title, text, action }) {
  return new Promise((resolve) => {
    const dialog = openDialog({
      title,
      content: [
        h("p", null, text),
        h("div", { class: "row end" },
          h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Cancel"),
          h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, action)),
      ],
      onClose: (value) => resolve(value === "yes"),
    });
  });
}

/** Closes what belongs to the page that goes away. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]:not([data-sticky])")) dialog.close();
}
