// What can be done with endpoints: adding one, and pausing, resuming, polling or deleting it.

import { api } from "./api.js";
import { confirmDialog, openDialog } from "./dialog.js";
import { announce, h } from "./dom.js";
import { field, form } from "./form.js";

const ENDPOINTS = "/api/v1/polls/endpoints";
export const endpointPath = (id, rest = "") => `${ENDPOINTS}/${encodeURIComponent(id)}${rest}`;

/** done(text): it has been done. failed(problem): it has not. removing(): it is about to be deleted. */
export function actionButtons(endpoint, { done, failed, removing = () => {}, look = "quiet" }) {
  const { id } = endpoint;
  const button = (text, onclick, more = "") => h("button", { type: "button", class: `${look} ${more}`, "aria-label": `${text} ${id}`, onclick }, text);
  const act = async (work, text) => {
    try {
      await work();
      announce(text);
      await done(text);
    } catch (problem) {
      if (!problem.silent) failed(problem);
    }
  };
  const remove = async () => {
    const yes = await confirmDialog({ title: `Delete “${id}”?`, text: `It is no longer polled, and its results and history are forgotten. This cannot be undone.`, action: "Delete endpoint" });
    if (!yes) return;
    removing();
    await act(() => api.delete(endpointPath(id)), `${id} deleted`);
  };
  const paused = endpoint.state === "paused";
  return [
    paused ? button("Resume", () => act(() => api.post(endpointPath(id, "/resume")), `${id} is polled again`)) : button("Pause", () => act(() => api.post(endpointPath(id, "/pause")), `${id} is paused`)),
    !paused && button("Poll now", () => act(() => api.post(endpointPath(id, "/poll")), `${id} is polled in a moment`)),
    button("Delete", remove, "danger"),
  ];
}

const KINDS = [["web", "A web server (HTTP or HTTPS)"], ["tcp", "A port that accepts connections (TCP)"], ["tls", "A port that does TLS, and its certificate"]];

/** Asks for a new endpoint. done(endpoint): it is there. */
export function askForEndpoint(done) {
  const text = (name, label, hint, placeholder, more) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder, ...more }) });
  const area = (name, label, hint, placeholder) => field({ name, label, hint, control: h("textarea", { rows: 2, spellcheck: "false", placeholder }) });
  const all = {
    id: text("id", "Id", "A name of its own, so that you know it again.", "shop"),
    kind: field({ name: "kind", label: "What is polled", control: h("select", null, KINDS.map(([value, title]) => h("option", { value }, title))) }),
    url: text("url", "URL", null, "https://shop.example/health", { inputmode: "url" }),
    address: text("address", "Address", "A host and a port.", "db.example:5432"),
    interval: text("interval", "Every", "From the start of one poll to the start of the next.", "60s"),
    timeout: text("timeout", "Timeout", "For a poll as a whole.", "5s"),
    method: text("method", "Method", null, "GET"),
    status: text("expect.status", "Expected status", "Like 200, 200-299 or 200,204.", "200-399"),
    contains: text("expect.body", "The answer contains", "In its first 64 KiB.", "ready"),
    headers: area("headers", "Headers", "One on each line.", "Accept: application/json"),
    body: area("body", "Body to send", null, ""),
    server_name: text("server_name", "Name in the certificate", "If it is not the host.", "shop.example"),
    expires_in: text("expires_in", "Certificate good for", "It fails when the certificate ends sooner than that.", "14d"),
    verify: field({ name: "verify", label: "Certificate", control: h("select", null, h("option", { value: "" }, "Must be trusted"), h("option", { value: "no" }, "May be anyone's")) }),
    labels: text("labels", "Labels", "To find it by.", "env=prod, team=shop"),
  };
  const read = (name) => all[name].control.value.trim();
  const secure = () => read("kind") === "tls" || (read("kind") === "web" && /^https:/i.test(read("url")));
  const SHOWN = {
    url: () => read("kind") === "web", address: () => read("kind") !== "web", server_name: () => read("kind") === "tls", expires_in: secure, verify: secure,
    ...Object.fromEntries(["method", "status", "contains", "headers", "body"].map((name) => [name, () => read("kind") === "web"])),
  };
  const settle = () => Object.entries(SHOWN).forEach(([name, shown]) => { all[name].element.hidden = !shown(); });
  for (const name of ["kind", "url"]) all[name].control.addEventListener("input", settle);
  settle();

  const given = (name) => (all[name].element.hidden ? undefined : read(name) || undefined);
  const pairs = (name, between, sign) => {
    const parts = (given(name) ?? "").split(between).map((part) => part.trim()).filter(Boolean).map((part) => part.split(sign));
    return parts.length ? Object.fromEntries(parts.map(([key, ...rest]) => [key.trim(), rest.join(sign).trim()])) : undefined;
  };
  // "200" is a number for the node, "200-299" a text, and with commas it is a list.
  const statuses = (value) => {
    const parts = value?.split(/[\s,]+/).filter(Boolean).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
    return parts?.length > 1 ? parts : parts?.[0];
  };
  const written = () => {
    const web = read("kind") === "web";
    const expect = { status: statuses(given("status")), body: given("contains") };
    const plain = ["id", "url", "address", "interval", "timeout", "method", "body", "server_name", "expires_in"].map((name) => [name, given(name)]);
    return {
      ...Object.fromEntries(plain), kind: web ? (secure() ? "https" : "http") : read("kind"),
      expect: expect.status || expect.body ? expect : undefined, verify: given("verify") ? false : undefined,
      headers: pairs("headers", "\n", ":"), labels: pairs("labels", ",", "="),
    };
  };

  const { id, kind, url, address, interval, timeout, ...further } = all;
  const parts = form({
    fields: Object.values(all), submit: "Add endpoint", onCancel: () => dialog.close(),
    onSubmit: async () => {
      try {
        const made = await api.post(ENDPOINTS, written());
        dialog.close();
        announce(`${made.id} added`);
        await done(made);
      } catch (problem) {
        if (problem.code === "E_ENDPOINT_EXISTS") problem.field = "id";
        // What is wrong may be folded away.
        if (problem.flaws?.some((flaw) => Object.values(further).some((one) => flaw.field.startsWith(one.name)))) more.open = true;
        throw problem;
      }
    },
  });
  const more = h("details", { class: "more" }, h("summary", null, "More"), h("div", { class: "halves" }, Object.values(further).map((one) => one.element)));
  timeout.element.after(more);
  const pair = h("div", { class: "halves" });
  interval.element.before(pair);
  pair.append(interval.element, timeout.element);
  const dialog = openDialog({ title: "Add an endpoint", content: parts.element });
}
