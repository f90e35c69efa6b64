import { useQueryClient } from "@tanstack/react-query";

import { api } from "@/api/client";
import type { Plan } from "@/api/types";

/** What a tenant gets that is made without a word about plans. */
export const STANDARD_PLAN = "standard";

/** The server's rule in the page's words; the server has the last say. */
export function planNameProblem(name: string): string | null {
  return /^[a-z0-9][a-z0-9-]{0,39}$/.test(name) ? null : "1 to 40 lower-case letters, digits and hyphens.";
}

export function usePlans() {
  return api.useQuery("get", "/admin/v1/plans");
}

/** For a field to choose from; the present one is there before the list is. */
export function planChoices(plans: readonly Plan[] | undefined, present: string): { value: string; label: string }[] {
  const choices = (plans ?? []).map(({ id }) => ({ value: id, label: id }));
  return choices.some(({ value }) => value === present) ? choices : [{ value: present, label: present }, ...choices];
}

/** Call it after a change of a plan: whatever shows limits is read again. */
export function useRefreshPlans(): () => Promise<void> {
  const client = useQueryClient();
  return async () => {
    await Promise.all([
      client.invalidateQueries({ queryKey: ["get", "/admin/v1/plans"] }),
      client.invalidateQueries({ queryKey: ["get", "/admin/v1/tenants/{slug}/limits"] }),
      client.invalidateQueries({ queryKey: ["get", "/admin/v1/tenants/{slug}/keys/{id}/limits"] }),
    ]);
  };
}
