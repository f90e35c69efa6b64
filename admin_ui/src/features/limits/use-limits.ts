import { useQueryClient } from "@tanstack/react-query";

import { api } from "@/api/client";
import type { LimitFigures } from "@/api/types";

const ofTenant = (slug: string) => ({ params: { path: { slug } } });
const ofKey = (slug: string, id: string) => ({ params: { path: { slug, id } } });

/** One dimension's own figures; null takes them away. */
export type LimitChange = Record<string, LimitFigures | null>;

export function useTenantLimits(slug: string) {
  const client = useQueryClient();
  const query = api.useQuery("get", "/admin/v1/tenants/{slug}/limits", ofTenant(slug));
  const put = api.useMutation("put", "/admin/v1/tenants/{slug}/limits");
  const change = async (limits: LimitChange): Promise<void> => {
    const answer = await put.mutateAsync({ ...ofTenant(slug), body: { limits } });
    const { queryKey } = api.queryOptions("get", "/admin/v1/tenants/{slug}/limits", ofTenant(slug));
    client.setQueryData(queryKey, answer);
  };
  return { query, change };
}

export function useKeyLimits(slug: string, id: string) {
  const client = useQueryClient();
  const query = api.useQuery("get", "/admin/v1/tenants/{slug}/keys/{id}/limits", ofKey(slug, id));
  const put = api.useMutation("put", "/admin/v1/tenants/{slug}/keys/{id}/limits");
  const change = async (limits: LimitChange): Promise<void> => {
    const answer = await put.mutateAsync({ ...ofKey(slug, id), body: { limits } });
    const { queryKey } = api.queryOptions("get", "/admin/v1/tenants/{slug}/keys/{id}/limits", ofKey(slug, id));
    client.setQueryData(queryKey, answer);
  };
  return { query, change };
}
