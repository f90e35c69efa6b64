import createFetchClient, { type Middleware } from "openapi-fetch";
import createQueryClient from "openapi-react-query";

import { csrf } from "./csrf";
import { readApiError, unreachable } from "./errors";
import type { paths } from "./schema.gen";

const SAFE_METHODS = new Set(["GET", "HEAD"]);

const guard: Middleware = {
  onRequest({ request }) {
    const token = csrf.get();
    if (token !== null && !SAFE_METHODS.has(request.method)) request.headers.set("X-CSRF-Token", token);
    return request;
  },
  async onResponse({ response }) {
    if (!response.ok) throw await readApiError(response);
  },
  onError: unreachable,
};

/** Typed by the admin API's own schema; every refusal arrives as a thrown `ApiError`. */
export const http = createFetchClient<paths>({
  baseUrl: location.origin,
  credentials: "same-origin",
  // Looked up at each call, so that a test can stand in for the network.
  fetch: (request) => globalThis.fetch(request),
});
http.use(guard);

export const api = createQueryClient(http);
