import { useMutation } from "@tanstack/react-query";

import { http } from "@/api/client";
import { asApiError } from "@/api/errors";
import type { Alias, AliasSet } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";

import { useRefreshAdapter } from "../use-adapters";

export type AliasChange =
  | { kind: "set"; body: AliasSet }
  | { kind: "rollback"; toRevision: number; reason?: string }
  | { kind: "remove" };

interface Order {
  alias: string;
  /** What the reader saw when they decided; 0 = no such alias. */
  revision: number;
  change: AliasChange;
}

type Outcome = { conflict: false } | { conflict: true; now: Alias | null };

interface Place {
  slug: string;
  name: string;
}

/**
 * Changes an alias only if it still is at the revision that the reader saw. A conflict is an outcome, not a failure:
 * it brings what the alias says now, and the adapter is read again.
 */
export function useAliasChange(place: Place) {
  const refresh = useRefreshAdapter(place.slug, place.name);
  return useMutation({
    mutationFn: async ({ alias, revision, change }: Order): Promise<Outcome> => {
      try {
        await send(place, alias, revision, change);
        return { conflict: false };
      } catch (error) {
        if (asApiError(error).code !== "revision_conflict") throw error;
        return { conflict: true, now: await current(place, alias) };
      }
    },
    onSuccess: async ({ conflict }, { alias }) => {
      await refresh();
      if (!conflict) toastDone(`Alias ${alias} changed.`);
    },
  });
}

async function send(place: Place, alias: string, revision: number, change: AliasChange): Promise<void> {
  const params = { path: { ...place, alias } };
  const headers: Record<string, string> = revision === 0 ? { "If-None-Match": "*" } : { "If-Match": `"${revision}"` };
  switch (change.kind) {
    case "set":
      await http.PUT("/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}", { params, headers, body: change.body });
      break;
    case "rollback": {
      const body = { to_revision: change.toRevision, ...(change.reason ? { reason: change.reason } : {}) };
      await http.POST("/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}/rollback", { params, headers, body });
      break;
    }
    case "remove":
      await http.DELETE("/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}", { params, headers });
  }
}

/** What the alias says now; null when somebody removed it. */
async function current(place: Place, alias: string): Promise<Alias | null> {
  try {
    const params = { path: { ...place, alias } };
    const { data } = await http.GET("/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}", { params });
    return data ?? null;
  } catch (error) {
    if (asApiError(error).status === 404) return null;
    throw error;
  }
}
