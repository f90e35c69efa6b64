import { useQuery, useQueryClient } from "@tanstack/react-query";

import { api } from "@/api/client";

const DETAIL_POLL_MS = 5000;

export const tenantsQuery = api.queryOptions("get", "/admin/v1/tenants");

const ofTenant = (slug: string) => ({ params: { path: { slug } } });

export function useTenants() {
  return useQuery(tenantsQuery);
}

/** One tenant with what it holds in the engine; that changes by itself. */
export function useTenant(slug: string) {
  return api.useQuery("get", "/admin/v1/tenants/{slug}", ofTenant(slug), { refetchInterval: DETAIL_POLL_MS });
}

/** Call it after a change of a tenant: the list, its page and its limits (which hang on the plan) are read again. */
export function useRefreshTenant(slug: string): () => Promise<void> {
  const client = useQueryClient();
  return async () => {
    const one = api.queryOptions("get", "/admin/v1/tenants/{slug}", ofTenant(slug));
    const limits = api.queryOptions("get", "/admin/v1/tenants/{slug}/limits", ofTenant(slug));
    await Promise.all([
      client.invalidateQueries({ queryKey: tenantsQuery.queryKey }),
      client.invalidateQueries({ queryKey: one.queryKey }),
      client.invalidateQueries({ queryKey: limits.queryKey }),
    ]);
  };
}
