import { useQueryClient } from "@tanstack/react-query";

import { api } from "@/api/client";

const ofTenant = (slug: string) => ({ params: { path: { slug } } });

export function useKeys(slug: string) {
  return api.useQuery("get", "/admin/v1/tenants/{slug}/keys", ofTenant(slug));
}

/** Call it after a key was made or changed: the lists, its page and the tenants' counts are read again. */
export function useRefreshKeys(slug: string): () => void {
  const client = useQueryClient();
  return () => {
    const { queryKey } = api.queryOptions("get", "/admin/v1/tenants/{slug}/keys", ofTenant(slug));
    void client.invalidateQueries({ queryKey });
    void client.invalidateQueries({ queryKey: api.queryOptions("get", "/admin/v1/tenants").queryKey });
    void client.invalidateQueries({ queryKey: api.queryOptions("get", "/admin/v1/tenants/{slug}", ofTenant(slug)).queryKey });
  };
}
