import { api } from "@/api/client";
import type { Adapter } from "@/api/types";

export const WATCH_MS = 1000;
export const IDLE_MS = 3000;

function someAreValidating(adapters: readonly Adapter[]): boolean {
  return adapters.some(({ versions }) => versions.some(({ state }) => state === "validating"));
}

/** Looks every second while a version is being validated, and now and then for what somebody else pushes. */
export function useAdapters(slug: string) {
  return api.useQuery(
    "get",
    "/admin/v1/tenants/{slug}/adapters",
    { params: { path: { slug } } },
    { refetchInterval: (query) => (someAreValidating(query.state.data?.data ?? []) ? WATCH_MS : IDLE_MS) },
  );
}
