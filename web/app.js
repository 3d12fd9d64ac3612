// Starts the dashboard: asks who is looking, loads the pages, opens the one in the address.
//
// A page is one file in pages/ and nothing else has to be edited for it:
//   export const page = { path: "/keys", title: "Keys", order: 80, icon: "24 x 24 path data", needs: "admin" };
//   export function mount(root, context) { ...; return cleanup; }
// context: { params, noteParams(object), session, can(scope), refreshSession(), signal (aborted when the page closes) }.

import { api, whenUnauthorized } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { announce, h } from "./dom.js";
import { showLogin } from "./login.js";
import { notice, pageHead, problemNotice } from "./notice.js";
import { follow, noteParams, where } from "./router.js";
import * as session from "./session.js";
import * as shell from "./shell.js";

const main = document.getElementById("main");
let pages = null;
let broken = [];
let close = () => {};
let atLogin = false;

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
  if (!pages) await loadPages();
  atLogin = false;
  document.body.dataset.view = "pages";
  shell.drawNavigation(pages);
  shell.watchNode(session.can("read"));
  open(moveFocus);
}

// One page that fails to load must not take the others with it.
async function loadPages() {
  const { pages: names } = await api.get("/api/v1/pages");
  const loaded = await Promise.allSettled(names.map((name) => import(`./pages/${name}`)));
  broken = names.filter((_, index) => !loaded[index].value?.page);
  pages = loaded.map((one) => one.value).filter((one) => one?.page).sort((a, b) => a.page.order - b.page.order);
}

/** Opens the page in the address. */
function open(moveFocus = true) {
  if (atLogin || !pages) return;
  leave();
  shell.openMenu(false);
  const { path, params } = where();
  const found = pages.find(({ page }) => page.path === path);
  document.title = `${found?.page.title ?? "Not found"} · Skep`;
  shell.markCurrent(path);
  const root = h("div", { class: "page" });
  main.replaceChildren(root, ...broken.map((name) => notice("warn", `The page ${name} could not be loaded`, "The other pages work. The browser's console says why.")));
  scrollTo(0, 0);
  if (!found) {
    root.append(pageHead("Nothing here"), h("p", null, "There is no page at this address. ", h("a", { href: "#/" }, "Go to the overview"), "."));
  } else if (!session.can(found.page.needs)) {
    root.append(pageHead(found.page.title), notice("warn", `This page needs a key with the scope ${found.page.needs}`, "Sign out and in again with such a key to see it."));
  } else {
    mount(found, root, params);
  }
  if (moveFocus) (root.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function mount(found, root, params) {
  const ending = new AbortController();
  const context = { params, noteParams, session: session.current(), can: session.can, signal: ending.signal, refreshSession };
  let cleanup;
  try {
    cleanup = found.mount(root, context);
  } catch (error) {
    console.error(error);
    root.replaceChildren(pageHead(found.page.title), problemNotice(error));
  }
  close = () => {
    ending.abort();
    cleanup?.();
  };
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
follow(() => open());
start();
