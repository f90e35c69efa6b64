import { useQueryClient } from "@tanstack/react-query";

import { api } from "@/api/client";
import type { Version } from "@/api/types";

const WATCH_MS = 1000;
const IDLE_MS = 3000;

const ofTenant = (slug: string) => ({ params: { path: { slug } } });
const ofAdapter = (slug: string, name: string) => ({ params: { path: { slug, name } } });

/** Looks every second while a version is being validated, and now and then for what somebody else does. */
function pace(versions: readonly Version[]): number {
  return versions.some(({ state }) => state === "validating") ? WATCH_MS : IDLE_MS;
}

export function useAdapters(slug: string) {
  return api.useQuery("get", "/admin/v1/tenants/{slug}/adapters", ofTenant(slug), {
    refetchInterval: (query) => pace((query.state.data?.data ?? []).flatMap(({ versions }) => versions)),
  });
}

export function useAdapter(slug: string, name: string) {
  return api.useQuery("get", "/admin/v1/tenants/{slug}/adapters/{name}", ofAdapter(slug, name), {
    refetchInterval: (query) => pace(query.state.data?.versions ?? []),
  });
}

/** Call it after a change of one adapter: its page, the tenant's list and the alias histories are read again. */
export function useRefreshAdapter(slug: string, name: string): () => Promise<void> {
  const client = useQueryClient();
  return async () => {
    const list = api.queryOptions("get", "/admin/v1/tenants/{slug}/adapters", ofTenant(slug));
    const one = api.queryOptions("get", "/admin/v1/tenants/{slug}/adapters/{name}", ofAdapter(slug, name));
    await Promise.all([
      client.invalidateQueries({ queryKey: list.queryKey }),
      client.invalidateQueries({ queryKey: one.queryKey }),
      client.invalidateQueries({ queryKey: ["get", "/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}/history"] }),
    ]);
  };
}
