// The login view: one field for a key. Shown whenever the node wants to know who is asking.

import { Problem } from "./api.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { field, form } from "./form.js";
import * as session from "./session.js";

/** Draws the login into `root` and calls `done` once the node accepts a key. Returns a cleanup function. */
export function showLogin(root, done) {
  let timer;
  const key = field({
    name: "key",
    label: "Key",
    hint: "It begins with skep_. Somebody with an admin key can create one for you.",
    control: h("input", { type: "password", autocomplete: "current-password", spellcheck: "false", autocapitalize: "off" }),
  });
  const login = form({ fields: [key], submit: "Sign in", onSubmit: send });

  async function send() {
    const value = key.control.value.trim();
    if (!value) throw new Problem({ title: "Please enter a key", field: "key" });
    try {
      await session.login(value);
    } catch (problem) {
      if (problem.status === 429) return wait(problem.retryAfter ?? 30);
      if (problem.status !== 401) throw problem;
      key.control.select();
      throw new Problem({ title: "That key does not open this node", detail: "please check it for missing characters. It may also be expired or revoked.", field: "key" });
    }
    done();
  }

  // Counts down in the error line; the button waits with the reader.
  function wait(seconds) {
    key.error.textContent = seconds > 0 ? `Too many tries. Please wait ${duration(seconds)}.` : "You can try again now.";
    login.button.setAttribute("aria-disabled", seconds > 0);
    if (seconds > 0) timer = setTimeout(() => wait(seconds - 1), 1000);
  }

  root.replaceChildren(h("div", { class: "card login" },
    h("img", { src: "/assets/icon.svg", alt: "", width: 56, height: 56 }),
    h("h1", { tabindex: "-1" }, "Sign in to Skep"),
    h("p", { class: "dim" }, "This node asks for a key. Afterwards you are back where you were."),
    login.element));
  key.control.focus();
  return () => clearTimeout(timer);
}
