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

/**
 * Notes the state of the present view in its address, without opening it anew. step: it is one that the back button
 * leads back from, such as a tab; what is typed into a filter is not.
 */
export function noteParams(params, { step = false } = {}) {
  const to = link(where().path, params);
  if (to !== location.hash) history[step ? "pushState" : "replaceState"](null, "", to);
}

/** The same for a part of the view, which leaves the others' parts as they are. */
export function addParams(more, options) {
  noteParams({ ...Object.fromEntries(where().params), ...more }, options);
}

/** Calls `open` at every change of the address. */
export function follow(open) {
  addEventListener("hashchange", open);
}
