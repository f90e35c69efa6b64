import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { http } from "@/api/client";
import type { UsageRow } from "@/api/types";
import { useNow } from "@/format/use-now";

import { monthSoFar, type Stretch } from "./periods";
import type { Group } from "./series";

const POLL_MS = 10_000;

/** Whose usage: a tenant's, or everybody's. */
export type Whose = string | null;

interface Wish extends Stretch {
  group_by?: string;
}

async function read(whose: Whose, query: Wish, signal: AbortSignal): Promise<UsageRow[]> {
  const { data } =
    whose === null
      ? await http.GET("/admin/v1/usage", { params: { query }, signal })
      : await http.GET("/admin/v1/tenants/{slug}/usage", { params: { path: { slug: whose }, query }, signal });
  if (data === undefined || typeof data === "string") throw new Error("The usage came back empty.");
  return data.data;
}

/** What belongs to a tenant is asked for with the tenant, where there are several. */
function wish(whose: Whose, { start, end, bucket }: Stretch, by: Group | null): Wish {
  if (by === null) return { start, end, bucket };
  const isOfTenant = whose === null && by !== "tenant" && by !== "model";
  return { start, end, bucket, group_by: isOfTenant ? `tenant,${by}` : by };
}

/** Rows of the stretch; while others are fetched, those before stay. */
export function useUsage(whose: Whose, stretch: Stretch, by: Group | null) {
  const query = wish(whose, stretch, by);
  return useQuery({
    queryKey: ["usage", whose, query],
    queryFn: ({ signal }) => read(whose, query, signal),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
}

/** This month by day: a tenant's as a whole, or everybody's by tenant. */
export function useMonth(whose: Whose) {
  return useUsage(whose, monthSoFar(useNow()), whose === null ? "tenant" : null);
}

/** Where a browser downloads the same rows as a file. */
export function csvAddress(whose: Whose, stretch: Stretch, by: Group | null): string {
  const path = whose === null ? "/admin/v1/usage" : `/admin/v1/tenants/${encodeURIComponent(whose)}/usage`;
  const query = Object.entries(wish(whose, stretch, by)).map(([name, value]) => [name, String(value)]);
  return `${path}?${new URLSearchParams([...query, ["format", "csv"]]).toString()}`;
}
