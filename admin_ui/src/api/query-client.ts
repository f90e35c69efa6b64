import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";

import { csrf } from "./csrf";
import { asApiError } from "./errors";
import type { Session } from "./types";

export const SESSION_KEY = ["session"] as const;

/** `null` = nobody is signed in; absent = not asked yet. */
export function setSession(client: QueryClient, session: Session | null): void {
  csrf.set(session?.csrf_token ?? null);
  client.setQueryData(SESSION_KEY, session);
}

/** One place decides what a failure means: 401 ends the session, a failed change is told in a toast. */
export function createAppQueryClient(onMutationError: (error: unknown) => void): QueryClient {
  const endSessionWhenRefused = (error: unknown): boolean => {
    if (asApiError(error).status !== 401) return false;
    setSession(client, null);
    return true;
  };
  const client: QueryClient = new QueryClient({
    queryCache: new QueryCache({ onError: (error) => void endSessionWhenRefused(error) }),
    mutationCache: new MutationCache({
      onError: (error) => {
        if (!endSessionWhenRefused(error)) onMutationError(error);
      },
    }),
    defaultOptions: {
      queries: {
        // Only what may pass by itself is tried again: no connection, or a server that is starting.
        retry: (failures, error) => failures < 2 && [0, 502, 503].includes(asApiError(error).status),
        retryDelay: 500,
        refetchOnWindowFocus: true,
      },
    },
  });
  return client;
}
