// The frame around the pages: navigation, node state, who is signed in, and the banner for a lost connection.

import { h, icon, setText } from "./dom.js";
import { listen, retryNow, watchConnection } from "./live.js";
import { link } from "./router.js";
import * as session from "./session.js";
import { themeButton } from "./theme.js";

const by = (id) => document.getElementById(id);
const HEXAGON = "M12 3l8 4.5v9L12 21l-8-4.5v-9z";
let stopListening = null;
let lost = false;
let version = { first: null, now: null };

/** Wires what is there once. onLogout runs after signing out. */
export function prepare(onLogout) {
  themeButton(by("theme"));
  by("skip").addEventListener("click", (event) => {
    // The address bar belongs to the router, so the jump is made by hand.
    event.preventDefault();
    by("main").focus();
  });
  by("menu").addEventListener("click", () => openMenu(by("menu").getAttribute("aria-expanded") !== "true"));
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || by("menu").getAttribute("aria-expanded") !== "true") return;
    openMenu(false);
    by("menu").focus();
  });
  by("who").addEventListener("click", (event) => { if (event.target.matches("button")) onLogout(); });
  watchConnection((now) => {
    if (now === lost) return;
    lost = now;
    if (lost) showState("lost", "not reachable");
    drawBanner();
  });
}

export function openMenu(open) {
  by("menu").setAttribute("aria-expanded", open);
  document.body.classList.toggle("menu-open", open);
}

/** Lists the pages this session may see. */
export function drawNavigation(pages) {
  by("nav").replaceChildren(...pages.filter((page) => session.can(page.needs)).map((page) =>
    h("li", null, h("a", { href: link(page.path), "data-path": page.path }, icon(page.icon ?? HEXAGON), page.title))));
  const { key } = session.current();
  by("who").replaceChildren(...(key ? [h("span", { title: key.scopes.join(", ") }, `Signed in as ${key.name}`), h("button", { type: "button", class: "plain" }, "Sign out")] : []));
}

export function markCurrent(path) {
  for (const anchor of by("nav").querySelectorAll("a")) {
    if (anchor.dataset.path === path) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

/** Follows the node while somebody may see it. */
export function watchNode(on) {
  stopListening?.();
  stopListening = null;
  if (!on) return by("node-line").replaceChildren();
  const name = h("strong");
  by("node-line").replaceChildren(icon(HEXAGON), h("span", null, name, h("span", { class: "dim" })));
  showState("unknown", "connecting");
  stopListening = listen("/api/v1/live", "overview", ({ node }) => {
    setText(name, node.name);
    showState(node.state, `${node.state}, version ${node.version}`);
    if (version.now === node.version) return;
    version = { first: version.first ?? node.version, now: node.version };
    drawBanner();
  }, { silence: 10000 });
}

function showState(state, text) {
  const line = by("node-line");
  line.dataset.state = state;
  if (line.firstChild) setText(line.querySelector(".dim"), text);
}

function drawBanner() {
  const say = (text, action, onclick) => [h("span", null, text), h("button", { type: "button", onclick }, action)];
  let parts = [];
  if (lost) parts = say("Connection lost, trying again", "Try now", retryNow);
  // The node was updated below this page: the page's code may no longer fit it.
  else if (version.now !== version.first) parts = say(`The node now runs version ${version.now}`, "Reload", () => location.reload());
  by("banner").replaceChildren(...parts);
}
