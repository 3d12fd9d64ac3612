// The address of a view is in the hash: #/log?level=warn. So a view can be linked and bookmarked.

/** Where we are: { path: "/log", params: URLSearchParams }. */
export function where() {
  const [path, query = ""] = location.hash.slice(1).split("?", 2);
  return { path: path.startsWith("/") ? path : "/", params: new URLSearchParams(query) };
}

/** The link to a view; empty parameters are left out. */
export function link(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString();
  return `#${path}${query ? `?${query}` : ""}`;
}

/** Notes the state of the present view in its address, without opening it anew. */
export function noteParams(params) {
  history.replaceState(null, "", link(where().path, params));
}

/** Calls `open` at every change of the address. */
export function follow(open) {
  addEventListener("hashchange", open);
}
