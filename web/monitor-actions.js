// What can be done with servers, monitors and accounts: adding them, pausing and resuming them, and deleting them.

import { api } from "./api.js";
import { copyButton } from "./copy.js";
import { confirmDialog, openDialog } from "./dialog.js";
import { announce, h } from "./dom.js";
import { field, form } from "./form.js";
import { path } from "./monitor-words.js";
import { notice } from "./notice.js";

const text = (name, label, hint, placeholder, more) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder, ...more }) });
const select = (name, label, hint, options) => field({ name, label, hint, control: h("select", null, options.map(([value, title]) => h("option", { value }, title))) });
const read = (one) => (one.element.hidden ? undefined : one.control.value.trim() || undefined);
const number = (one) => (read(one) === undefined ? undefined : /^-?\d+$/.test(read(one)) ? Number(read(one)) : read(one));
const halves = (...fields) => {
  const pair = h("div", { class: "halves" });
  fields[0].element.before(pair);
  pair.append(...fields.map((one) => one.element));
};

const PROBES = [["ntp", "Its clock (NTP)"], ["http", "A web server (HTTP or HTTPS)"], ["tcp", "A port that accepts connections (TCP)"]];
const TARGETS = {
  ntp: ["Host and port; its address and port 123 if left out.", "time.example:123"],
  http: ["", "https://www.example/health"],
  tcp: ["Host and port.", "db.example:5432"],
};

/** A dialog with a form. exists: the code that says its id is taken. */
function ask({ title, fields, submit, exists, send, arrange = () => {} }) {
  const made = form({
    fields, submit, onCancel: () => dialog.close(),
    onSubmit: async () => {
      try {
        await send(() => dialog.close());
      } catch (problem) {
        if (problem.code === exists) problem.field = "id";
        if (/^E_ACCOUNT_(UNKNOWN|FULL|DISABLED)$/.test(problem.code)) problem.field = "account";
        throw problem;
      }
    },
  });
  arrange();
  const dialog = openDialog({ title, content: made.element });
  fields[0].control.focus();
}

/** Asks for a new server. done(server): it is there. */
export function askForServer(done) {
  const all = {
    id: text("id", "Id", "A name of its own, so that you know it again.", "ntp-1"),
    ip: text("ip", "Address", "Monitors of the same network are kept away from it.", "192.0.2.17"),
    kind: select("probe.kind", "What is measured", null, PROBES),
    target: text("probe.target", "Target", "", ""),
    timeout: text("probe.timeout", "Timeout", "For an answer.", "5s"),
    expect: text("probe.expect_status", "Expected status", "200 to 399 if left out.", "200", { inputmode: "numeric" }),
    account: text("account", "Account", "Whose it is; its own monitors never watch it.", "acme"),
  };
  const settle = () => {
    const [hint, placeholder] = TARGETS[all.kind.control.value];
    all.target.element.querySelector("p").textContent = hint;
    all.target.control.placeholder = placeholder;
    all.expect.element.hidden = all.kind.control.value !== "http";
  };
  all.kind.control.addEventListener("input", settle);
  settle();
  ask({
    title: "Add a server", fields: Object.values(all), submit: "Add server", exists: "E_SERVER_EXISTS",
    arrange: () => halves(all.timeout, all.expect),
    send: async (close) => {
      const probe = { kind: all.kind.control.value, target: read(all.target), timeout: read(all.timeout), expect_status: number(all.expect) };
      const made = await api.post("/api/v1/servers", { id: read(all.id), ip: read(all.ip), account: read(all.account), probe });
      close();
      announce(`${made.id} added`);
      await done(made);
    },
  });
}

/** Asks for a new monitor, and shows its key once. done(monitor): it is there. */
export function askForMonitor(done) {
  const all = {
    id: text("id", "Id", "A name of its own, so that you know it again.", "ams-3"),
    ip: text("ip", "Address", "Where it measures from.", "192.0.2.7"),
    account: text("account", "Account", "Who runs it.", "acme"),
    status: select("status", "Status", "A pending one measures nothing until somebody approves it.", [["pending", "Pending"], ["testing", "Testing: approved, on trial everywhere"], ["active", "Active: fully approved"]]),
    labels: text("labels", "Labels", "To find it by.", "city=ams, rack=7"),
  };
  const labels = () => {
    const parts = (read(all.labels) ?? "").split(",").map((part) => part.trim()).filter(Boolean).map((part) => part.split("="));
    return parts.length ? Object.fromEntries(parts.map(([name, ...rest]) => [name.trim(), rest.join("=").trim()])) : undefined;
  };
  ask({
    title: "Add a monitor", fields: Object.values(all), submit: "Add monitor", exists: "E_MONITOR_EXISTS",
    send: async (close) => {
      const made = await api.post("/api/v1/monitors", { id: read(all.id), ip: read(all.ip), account: read(all.account), status: read(all.status), labels: labels() });
      close();
      announce(`${made.id} added`);
      if (made.key) showKey(made.id, made.key);
      await done(made);
    },
  });
}

/** Asks for a new account. done(account): it is there. */
export function askForAccount(done) {
  const all = {
    id: text("id", "Id", "A name of its own, so that you know it again.", "acme"),
    name: text("name", "Name", "For people.", "Acme Ltd."),
    monitors: text("flags.monitor_limit", "Monitors it may register", "Any number if left out.", "20", { inputmode: "numeric" }),
    server: text("flags.monitor_per_server_limit", "Active on one server", "As the settings say if left out.", "2", { inputmode: "numeric" }),
  };
  ask({
    title: "Add an account", fields: Object.values(all), submit: "Add account", exists: "E_ACCOUNT_EXISTS",
    arrange: () => halves(all.monitors, all.server),
    send: async (close) => {
      const flags = { monitor_limit: number(all.monitors), monitor_per_server_limit: number(all.server) };
      const made = await api.post("/api/v1/accounts", { id: read(all.id), name: read(all.name), flags });
      close();
      announce(`${made.id} added`);
      await done(made);
    },
  });
}

/** The only time anyone sees the key: this dialog stays even if the page below goes away. */
export function showKey(id, key) {
  const start = `skep agent --server ${location.origin} --key ${key}`;
  const dialog = openDialog({
    title: `The key of “${id}”`, sticky: true,
    content: [
      notice("warn", "Copy it now", "It is not shown again. It is this monitor's alone, and lets it fetch its assignments and report."),
      h("code", { class: "secret", tabindex: "0" }, key),
      h("p", { class: "dim small" }, "Where it measures:"),
      h("div", { class: "curl" }, h("pre", null, start), copyButton(() => start)),
      h("div", { class: "row end" }, copyButton(() => key, "Copy the key", ""), h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "I have it")),
    ],
  });
  dialog.element.querySelector(".row .copy").focus();
}

/** Makes a button for each thing. done(text): it has been done. failed(problem): it has not. */
function buttons(id, list, { done, failed, look = "quiet" }) {
  const act = async (work, said) => {
    try {
      await work();
      announce(said);
      await done(said);
    } catch (problem) {
      if (!problem.silent) failed(problem);
    }
  };
  return list.filter(Boolean).map(([label, work, said, more = "", question = null]) => h("button", {
    type: "button", class: `${look} ${more}`, "aria-label": `${label} ${id}`,
    onclick: async () => { if (!question || (await confirmDialog(question))) await act(work, said); },
  }, label));
}

export function serverButtons({ id, paused }, options) {
  const post = (what) => () => api.post(path("servers", id, `/${what}`));
  const question = { title: `Delete “${id}”?`, text: "It is no longer watched, and its measurements and history are forgotten. This cannot be undone.", action: "Delete server" };
  return buttons(id, [
    paused ? ["Resume", post("resume"), `${id} is watched again`] : ["Pause", post("pause"), `${id} is paused`],
    !paused && ["Review now", post("review"), `${id} is reviewed in a moment`],
    ["Delete", async () => { options.removing?.(); await api.delete(path("servers", id)); }, `${id} deleted`, "danger", question],
  ], options);
}

export function monitorButtons({ id, status }, options) {
  const set = (to, said) => [() => api.post(path("monitors", id, "/status"), { status: to }), said];
  const question = { title: `Delete “${id}”?`, text: "Its key is refused at once, and it leaves each server at the next review. This cannot be undone.", action: "Delete monitor" };
  const renew = { title: `A new key for “${id}”?`, text: "The one it has is refused within seconds; it reports nothing until it has the new one.", action: "Make a new key" };
  return status === "deleted" ? [] : buttons(id, [
    (status === "pending" || status === "paused") && [status === "paused" ? "Resume, on trial" : "Approve, on trial", ...set("testing", `${id} is in testing`)],
    status !== "active" && [status === "paused" ? "Resume" : "Approve", ...set("active", `${id} is active`)],
    status !== "paused" && ["Pause", ...set("paused", `${id} is paused`)],
    options.all && ["New key", async () => showKey(id, (await api.post(path("monitors", id, "/key"))).key), `${id} has a new key`, "", renew],
    options.all && ["Delete", async () => { options.removing?.(); await api.delete(path("monitors", id)); }, `${id} deleted`, "danger", question],
  ], options);
}

export function accountButtons({ id, name, flags }, options) {
  const set = (enabled) => () => api.put(path("accounts", id), { id, name: name ?? undefined, flags: { ...flags, monitor_enabled: enabled } });
  const question = { title: `Disable “${id}”?`, text: "It registers no more monitors, and those it has count as paused: they leave their servers at the next reviews.", action: "Disable account" };
  const gone = { title: `Delete “${id}”?`, text: "This cannot be undone.", action: "Delete account" };
  return buttons(id, [
    flags.monitor_enabled === false ? ["Enable", set(true), `${id} is enabled`] : ["Disable", set(false), `${id} is disabled`, "", question],
    ["Delete", () => api.delete(path("accounts", id)), `${id} deleted`, "danger", gone],
  ], options);
}
