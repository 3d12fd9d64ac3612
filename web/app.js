// Starts the dashboard: asks who is looking and which pages there are, opens the one in the address.
//
// A page is one file in pages/ and nothing else has to be edited for it:
//   export const page = { "path": "/keys", "title": "Keys", "order": 80, "needs": "admin", "icon": "24 x 24 path data" };
//   export function mount(root, context) { ...; return cleanup; }
// The first line is JSON on one line, because the build reads it for the navigation (needs and icon may be left out).
// The rest of the file is loaded when the page is first opened.
// context: { params, noteParams(object), session, can(scope), refreshSession(), signal (aborted when the page closes) }.

import { api, Problem, whenQuiet, whenUnauthorized } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { announce, h } from "./dom.js";
import { showLogin } from "./login.js";
import { notice, pageHead, problemNotice } from "./notice.js";
import { preparePalette } from "./palette.js";
import { follow, noteParams, where } from "./router.js";
import * as session from "./session.js";
import * as shell from "./shell.js";

const main = document.getElementById("main");
let pages = null;
let close = () => {};
let atLogin = false;
// A page is shown as a whole, when its first answers are there or this time is over: nothing moves while it is read.
const SETTLE = 1200;

async function start() {
  try {
    await session.refresh();
    if (session.locked()) return login();
    await enter(false);
  } catch (problem) {
    if (problem.silent) return;
    main.replaceChildren(pageHead("Skep"), problemNotice(problem, start));
    // A node that is starting says when to ask again; nobody should have to press for that.
    if (problem.retryAfter) setTimeout(start, problem.retryAfter * 1000);
  }
}

async function enter(moveFocus = true) {
  if (!pages) ({ pages } = await api.get("/api/v1/pages"));
  atLogin = false;
  document.body.dataset.view = "pages";
  shell.drawNavigation(pages);
  shell.watchNode(session.can("read"));
  open(moveFocus);
}

/** Opens the page in the address. */
function open(moveFocus = true) {
  if (atLogin || !pages) return;
  leave();
  shell.openMenu(false);
  const { path, params } = where();
  const page = pages.find((one) => one.path === path);
  document.title = `${page?.title ?? "Not found"} · Skep`;
  shell.markCurrent(path);
  const root = h("div", { class: "page" });
  main.replaceChildren(root);
  scrollTo(0, 0);
  if (!page) {
    root.append(pageHead("Nothing here"), h("p", null, "There is no page at this address. ", h("a", { href: "#/" }, "Go to the overview"), "."));
  } else if (!session.can(page.needs)) {
    root.append(pageHead(page.title), notice("warn", `This page needs a key with the scope ${page.needs}`, "Sign out and in again with such a key to see it."));
  } else {
    show(page, root, params);
  }
  if (moveFocus) focusOn(root);
}

/** Loads the page's code if this is the first time, and lets it fill root, unless the reader has left meanwhile. */
async function show(page, root, params) {
  const ending = new AbortController();
  close = () => ending.abort();
  if (page.module) return mount(page, root, params, ending);
  root.setAttribute("aria-busy", "true");
  root.append(pageHead(page.title), h("span", { class: "ghost" }));
  const problem = await load(page);
  if (ending.signal.aborted) return;
  const held = root.contains(document.activeElement);
  root.removeAttribute("aria-busy");
  root.replaceChildren();
  if (problem) showFailure(page, root, problem, ending.signal);
  else mount(page, root, params, ending);
  if (held) focusOn(root);
}

// One page that fails to load must not take the others with it.
async function load(page) {
  try {
    page.module = await import(`./pages/${page.file}`);
    return null;
  } catch (error) {
    console.error(error);
    return new Problem({ title: "This page could not be loaded", detail: `${error.message}. The other pages may work.` });
  }
}

function showFailure(page, root, problem, signal) {
  const retry = async () => {
    try {
      await api.get(`/assets/pages/${page.file}`, { signal });
      // A browser may remember that an import has failed, and after an update the rest here is too old for the page.
      location.reload();
    } catch (again) {
      if (again.silent) return;
      showFailure(page, root, again, signal);
      focusOn(root);
    }
  };
  root.replaceChildren(pageHead(page.title), problemNotice(problem, retry));
}

function mount(page, root, params, ending) {
  const context = { params, noteParams, session: session.current(), can: session.can, signal: ending.signal, refreshSession };
  let cleanup;
  settle(root);
  try {
    cleanup = page.module.mount(root, context);
  } catch (error) {
    console.error(error);
    root.replaceChildren(pageHead(page.title), problemNotice(error));
  }
  close = () => {
    ending.abort();
    cleanup?.();
  };
}

function settle(root) {
  const show = () => { delete root.dataset.settling; };
  root.dataset.settling = "";
  setTimeout(show, SETTLE);
  // What is drawn with the next frame belongs to it.
  whenQuiet().then(() => requestAnimationFrame(() => requestAnimationFrame(show)));
}

function focusOn(root) {
  (root.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function leave() {
  closeDialogs();
  close();
  close = () => {};
}

function login() {
  if (atLogin) return;
  atLogin = true;
  leave();
  shell.watchNode(false);
  shell.openMenu(false);
  document.body.dataset.view = "login";
  document.title = "Sign in · Skep";
  close = showLogin(main, async () => {
    leave();
    announce("Signed in");
    try {
      await enter();
    } catch (problem) {
      if (!problem.silent) main.replaceChildren(pageHead("Skep"), problemNotice(problem, start));
    }
  });
}

/** After something changed the session: a first key, one's own key revoked, signing out. */
async function refreshSession() {
  await session.refresh();
  if (session.locked()) login();
  else shell.drawNavigation(pages), shell.markCurrent(where().path);
}

async function signOut() {
  try {
    await session.logout();
    if (session.locked()) login();
    else await enter();
  } catch (problem) {
    if (!problem.silent) main.prepend(problemNotice(problem));
  }
}

whenUnauthorized(login);
shell.prepare(signOut);
preparePalette(document.getElementById("search"), () => (atLogin ? null : pages));
follow(() => open());
start();
