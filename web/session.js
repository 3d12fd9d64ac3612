// Who is looking: the session as the node sees it, and what it may do.

import { api, useCsrf } from "./api.js";

const PATH = "/api/v1/session";
let session = { authenticated: false, login_required: true, key: null, csrf: null, open: false };

function keep(answer) {
  session = answer;
  useCsrf(answer.csrf);
  return session;
}

export const current = () => session;
export const refresh = async () => keep(await api.get(PATH));
export const login = async (key) => keep(await api.post(PATH, { key }, { login: true }));

export async function logout() {
  await api.delete(PATH);
  return refresh();
}

/** Is a key wanted before anything else? */
export const locked = () => session.login_required && !session.authenticated;

/** May this session do what `scope` allows? The node decides; this only hides what it would refuse. */
export function can(scope) {
  if (!scope || session.open || !session.key) return true;
  return session.key.scopes.includes("admin") || session.key.scopes.includes(scope);
}
