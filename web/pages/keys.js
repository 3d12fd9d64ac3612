// Keys: who may use this node. Lists, creates and revokes them.

import { api, Problem } from "../api.js";
import { copyButton } from "../copy.js";
import { confirmDialog, openDialog } from "../dialog.js";
import { announce, h } from "../dom.js";
import { dateTime, relative, when } from "../format.js";
import { choices, field, form } from "../form.js";
import { notice, openHint, pageHead, problemNotice } from "../notice.js";
import { current, login } from "../session.js";
import { emptyWith } from "../steps.js";
import { table } from "../table.js";

export const page = { "path": "/keys", "title": "Keys", "order": 80, "needs": "admin", "icon": "M15 4a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11 12.5l-7 7.5M7 17l2.5 2.5" };

const SCOPES = [
  ["admin", "Everything, keys and settings included."],
  ["read", "Look at everything except keys, log and audit."],
  ["push", "Push messages."],
  ["pop", "Pop and acknowledge messages."],
  ["session", "Open sessions through the gateway."],
  ["worker", "Register as a worker."],
  ["agent", "Report measurements as a monitor."],
  ["poll", "Manage endpoints that are polled."],
];
const LIFETIMES = [["", "Never"], ["1d", "After a day"], ["7d", "After a week"], ["30d", "After 30 days"], ["90d", "After 90 days"], ["365d", "After a year"]];

const stateOf = (key) => (key.revoked_at ? "revoked" : key.expires_at && new Date(key.expires_at) < Date.now() ? "expired" : "active");

export function mount(root, { session, signal, params, noteParams, refreshSession }) {
  let keys = [];
  let open = session.open;
  const create = h("button", { type: "button", class: "primary", onclick: askForKey }, "Create a key");
  const hint = h("div", null, open ? openHint() : null);
  const old = h("input", { type: "checkbox", checked: params.has("old"), onchange: () => {
    noteParams({ old: old.checked ? "1" : "" });
    draw();
  } });
  const oldLabel = h("span", null, "Show revoked and expired keys");
  const list = table({
    label: "Keys",
    empty: () => emptyWith("No keys to show. Create the first one with the button above, or on the command line:", "skep keys create --name me --scopes admin"),
    rowClass: (key) => (stateOf(key) === "active" ? null : "faded"),
    columns: [
      { title: "Name", class: "free", cell: (key) => [h("strong", null, key.name), key.id === current().key?.id && [" ", h("span", { class: "pill" }, "you")], h("div", { class: "dim mono small" }, key.id)] },
      { title: "Scopes", cell: (key) => h("span", { class: "chips" }, key.scopes.map((scope) => h("span", { class: "chip" }, scope))) },
      { title: "Created", class: "nowrap", cell: (key) => when(key.created_at, dateTime(key.created_at).slice(0, 10)) },
      { title: "Last used", class: "nowrap", cell: (key) => (key.last_used_at ? when(key.last_used_at, relative(key.last_used_at)) : "never") },
      { title: "Expires", class: "nowrap", cell: (key) => (key.expires_at ? when(key.expires_at, relative(key.expires_at)) : "never") },
      { title: "State", class: "last", cell: (key) => (stateOf(key) === "active"
        ? h("button", { type: "button", class: "danger quiet", "aria-label": `Revoke ${key.name}`, onclick: () => revoke(key) }, "Revoke")
        : h("span", { class: "pill" }, stateOf(key))) },
    ],
  });
  root.append(pageHead("Keys", "Who may use this node, and for what.", create), hint, h("label", { class: "choice line" }, old, oldLabel), list.element);

  function draw() {
    const gone = keys.filter((key) => stateOf(key) !== "active");
    oldLabel.textContent = `Show revoked and expired keys (${gone.length})`;
    list.set([...keys.filter((key) => stateOf(key) === "active"), ...(old.checked ? gone : [])]);
  }

  async function load() {
    try {
      ({ keys } = await api.get("/api/v1/keys", { signal }));
      draw();
    } catch (problem) {
      if (!problem.silent) list.say(problemNotice(problem, load));
    }
  }

  function askForKey() {
    const name = field({ name: "name", label: "Name", hint: "What will use it, so that you know it again: ci, grid-7, anna.", control: h("input", { type: "text", autocomplete: "off", spellcheck: "false" }) });
    const scopes = choices({ name: "scopes", label: "Scopes", hint: open ? "Make the first key an admin key, or nobody can manage keys here afterwards." : null,
      options: SCOPES.map(([value, text]) => ({ value, label: value, hint: text, checked: value === (open ? "admin" : "read") })) });
    const lifetime = field({ name: "expires_in", label: "Expires", hint: "An expired key stops working by itself.", control: h("select", null, LIFETIMES.map(([value, text]) => h("option", { value }, text))) });
    // Admin holds all the others, so choosing among them would mean nothing.
    const [admin, ...others] = scopes.boxes;
    const settle = () => others.forEach((box) => { box.disabled = admin.checked; });
    admin.addEventListener("change", settle);
    settle();

    const dialog = openDialog({ title: "Create a key", content: form({
      fields: [name, scopes, lifetime], submit: "Create key", onCancel: () => dialog.close(),
      onSubmit: async () => {
        const chosen = admin.checked ? ["admin"] : others.filter((box) => box.checked).map((box) => box.value);
        if (!name.control.value.trim()) throw new Problem({ title: "Please give the key a name", field: "name" });
        if (!chosen.length) throw new Problem({ title: "Please choose at least one scope", field: "scopes" });
        const made = await api.post("/api/v1/keys", { name: name.control.value.trim(), scopes: chosen, expires_in: lifetime.control.value || null });
        dialog.close();
        showSecret(made);
      },
    }).element });
  }

  // The only time anyone sees the secret: this dialog stays even if the page below goes away.
  function showSecret({ key, secret }) {
    const text = h("code", { class: "secret", tabindex: "0" }, secret);
    const dialog = openDialog({
      title: `The key “${key.name}”`, sticky: true,
      content: [
        notice("warn", "Copy it now", "It is not shown again. The node keeps only a fingerprint of it."),
        text,
        h("div", { class: "row end" }, copyButton(() => secret, "Copy the key", ""), h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "I have it")),
      ],
      onClose: () => settleIn(secret),
    });
    dialog.element.querySelector(".copy").focus();
  }

  // The first key ends the open door. Whoever made it walks in with it, instead of standing outside.
  async function settleIn(secret) {
    try {
      if (open) {
        await login(secret);
        await refreshSession();
        open = false;
        hint.replaceChildren();
      }
    } catch {
      await refreshSession().catch(() => {});
    }
    if (!signal.aborted) await load();
  }

  async function revoke(key) {
    const own = key.id === current().key?.id;
    const yes = await confirmDialog({
      title: `Revoke “${key.name}”?`,
      text: `Whatever uses the key ${key.name} (${key.id}) is refused from now on. This cannot be undone.${own ? " It is the key you are signed in with." : ""}`,
      action: "Revoke key",
    });
    if (!yes) return;
    try {
      await api.delete(`/api/v1/keys/${encodeURIComponent(key.id)}`);
      announce(`Key ${key.name} revoked`);
      if (own) await refreshSession();
      if (signal.aborted) return;
      await load();
      // The button that had the focus is gone.
      root.querySelector("h1").focus();
    } catch (problem) {
      if (!problem.silent) hint.replaceChildren(problemNotice(problem));
    }
  }

  load();
  return () => {};
}
