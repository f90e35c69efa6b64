import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { http } from "@/api/client";
import { csrf } from "@/api/csrf";
import { ApiError, asApiError } from "@/api/errors";
import { SESSION_KEY, setSession } from "@/api/query-client";
import type { Session } from "@/api/types";

async function fetchSession(): Promise<Session | null> {
  try {
    const { data } = await http.GET("/auth/session");
    csrf.set(data?.csrf_token ?? null);
    return data ?? null;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** Asked once for each load of the page; afterwards signing in, signing out and a 401 set it. */
export function useSession() {
  return useQuery({ queryKey: SESSION_KEY, queryFn: fetchSession, staleTime: Infinity, gcTime: Infinity });
}

export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => http.POST("/auth/logout"),
    onSuccess: () => {
      setSession(client, null);
    },
  });
}

export type BootstrapOutcome = { kind: "signed-in"; session: Session } | { kind: "refused" } | { kind: "failed"; message: string };

/** What a token that is used, expired, mistyped or no longer asked for is answered with. */
const SPENT = new Set([400, 401, 404, 409, 410]);

/** Exchanges the one-time owner token for a session; a refusal is an outcome here, not an error. */
export async function bootstrap(token: string): Promise<BootstrapOutcome> {
  try {
    const { data } = await http.POST("/auth/bootstrap", { body: { token } });
    return data ? { kind: "signed-in", session: data } : { kind: "refused" };
  } catch (error) {
    const { status, message } = asApiError(error);
    return SPENT.has(status) ? { kind: "refused" } : { kind: "failed", message };
  }
}
