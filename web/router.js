// The address of a view is in the hash: #/log?level=warn. So a view can be linked and bookmarked.

/** Where we are: { path: "/log", params: URLSearchParams }. */
export function where() {
  const [path, query = ""] = location.hash.slice(1).split("?", 2);
  return { path: path.startsWith("/") ? path : "/", params: new URLSearchParams(query) };
}

/** A path with its parameters; empty ones are left out. */
export function withQuery(path, params) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString();
  return query ? `${path}?${query}` : path;
}

/** The link to a view. */
export const link = (path, params = {}) => `#${withQuery(path, params)}`;

/** Notes the state of the present view in its address, without opening it anew. */
export function noteParams(params) {
  history.replaceState(null, "", link(where().path, params));
}

/** Calls `open` at every change of the address. */
export function follow(open) {
  addEventListener("hashchange", open);
}
