// Server-sent events: one connection per address however many listen, opened again when it breaks.

import { api, unauthorized } from "./api.js";

const streams = new Map();
const watchers = new Set();
// A break shorter than this is not worth a word on the screen.
const PATIENCE = 1500;
const LONGEST_WAIT = 15000;
// A hidden tab gives its connection back after this time; browsers allow only six per host with HTTP/1.1.
const HIDDEN_WAIT = 15000;

class Stream {
  constructor(url) {
    this.url = url;
    this.listeners = new Set();
    this.tries = 0;
    this.opened = false;
    this.downSince = null;
  }

  open() {
    this.shut();
    this.source = new EventSource(this.url);
    this.source.onopen = () => this.up();
    this.source.onerror = () => this.down();
    for (const event of new Set([...this.listeners].map((listener) => listener.event))) this.hear(event);
    this.guard();
  }

  hear(event) {
    this.source?.addEventListener(event, (message) => {
      this.guard();
      const data = JSON.parse(message.data);
      for (const listener of [...this.listeners].filter((one) => one.event === event)) {
        try {
          listener.handler(data);
        } catch (error) {
          console.error(error); // a page that stumbles must not deafen the others
        }
      }
    });
  }

  // A half-dead connection says nothing at all. Where events come every second, silence means it is broken.
  guard() {
    clearTimeout(this.silence);
    const limit = Math.min(...[...this.listeners].map((listener) => listener.silence ?? Infinity));
    if (limit < Infinity) this.silence = setTimeout(() => this.down(), limit);
  }

  up() {
    const again = this.opened || this.tries > 0;
    this.opened = true;
    this.tries = 0;
    this.downSince = null;
    tell();
    for (const listener of [...this.listeners]) listener.onOpen?.(again);
  }

  down() {
    this.shut();
    this.downSince ??= Date.now();
    setTimeout(tell, PATIENCE + 10);
    // With some chance in it, so that many tabs do not come back in the same instant.
    const wait = Math.min(LONGEST_WAIT, 500 * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.timer = setTimeout(() => this.open(), wait);
    tell();
    for (const listener of [...this.listeners]) listener.onDown?.();
    // An EventSource does not tell a 401 from a broken wire, the session does.
    api.get("/api/v1/session").then(
      (session) => { if (session.login_required && !session.authenticated) unauthorized(); },
      () => {},
    );
  }

  shut() {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.source?.close();
    this.source = null;
  }
}

function lost() {
  return [...streams.values()].some((stream) => stream.downSince !== null && Date.now() - stream.downSince >= PATIENCE);
}

function tell() {
  for (const watcher of watchers) watcher(lost());
}

/**
 * Listens to `event` at `url` until the returned function is called.
 * onOpen(again): the connection stands; after a break (again) it is time to fetch what was missed.
 * onDown(): it broke, or was refused. silence: milliseconds without an event that mean a break.
 */
export function listen(url, event, handler, { onOpen, onDown, silence } = {}) {
  let stream = streams.get(url);
  const listener = { event, handler, onOpen, onDown, silence };
  if (stream) {
    const known = [...stream.listeners].some((other) => other.event === event);
    stream.listeners.add(listener);
    if (!known) stream.hear(event);
  } else {
    stream = new Stream(url);
    streams.set(url, stream);
    stream.listeners.add(listener);
    stream.open();
  }
  return () => {
    stream.listeners.delete(listener);
    if (stream.listeners.size > 0 || streams.get(url) !== stream) return;
    stream.shut();
    streams.delete(url);
    tell();
  };
}

/** Tells `watcher` whether a connection is lost, at every change. */
export function watchConnection(watcher) {
  watchers.add(watcher);
}

/** Tries every broken connection now rather than after its wait. */
export function retryNow() {
  for (const stream of streams.values()) if (!stream.source) stream.open();
}

let hiding;
function seen() {
  clearTimeout(hiding);
  if (!document.hidden) return retryNow();
  hiding = setTimeout(() => {
    for (const stream of streams.values()) {
      stream.shut();
      stream.downSince = null;
    }
  }, HIDDEN_WAIT);
}
document.addEventListener("visibilitychange", seen);
seen(); // a tab can be opened in the background
addEventListener("online", retryNow);
// A page kept for the back button must not keep its connections: six are all there are.
addEventListener("pagehide", () => { for (const stream of streams.values()) stream.shut(); });
addEventListener("pageshow", retryNow);
