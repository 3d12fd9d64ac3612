// A button that copies text.

import { announce, h } from "./dom.js";

/** `text` is a function, so that what is copied may change. */
export function copyButton(text, label = "Copy", look = "quiet") {
  const button = h("button", { type: "button", class: `copy ${look}`, onclick: async () => {
    const done = await copy(text(), button);
    button.textContent = done ? "Copied" : "Select it and copy by hand";
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 2000);
  } }, label);
  return button;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No clipboard without TLS on another host. The old way still works there, from inside an open dialog too.
    const area = h("textarea", { class: "unseen", value: text, "aria-hidden": "true" });
    button.after(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    button.focus();
    return done;
  }
}
