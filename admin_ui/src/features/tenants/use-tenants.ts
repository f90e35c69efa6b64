import { useQuery } from "@tanstack/react-query";

import { api } from "@/api/client";

export const tenantsQuery = api.queryOptions("get", "/admin/v1/tenants");

export function useTenants() {
  return useQuery(tenantsQuery);
}
