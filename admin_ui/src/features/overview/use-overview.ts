import { useQuery } from "@tanstack/react-query";

import { http } from "@/api/client";
import type { Overview } from "@/api/types";
import type { Sample } from "@/components/sparkline";

export const POLL_MS = 2000;
export const WINDOW_MS = 60_000;

export interface LiveOverview {
  latest: Overview;
  /** Tokens a second over the last minute, kept by this page only. */
  rates: Sample[];
}

export function appendRecent(samples: readonly Sample[], sample: Sample): Sample[] {
  return [...samples.filter(({ at }) => sample.at - at <= WINDOW_MS), sample];
}

/** The history lies beside the figures in the query's data, so it survives a walk to another page and back. */
export function useOverview() {
  return useQuery({
    queryKey: ["overview"],
    queryFn: async ({ client, queryKey, signal }): Promise<LiveOverview> => {
      const { data } = await http.GET("/admin/v1/overview", { signal });
      if (data === undefined) throw new Error("The overview came back empty.");
      const before = client.getQueryData<LiveOverview>(queryKey)?.rates ?? [];
      return { latest: data, rates: appendRecent(before, { at: Date.now(), value: data.engine.tokens_per_second }) };
    },
    refetchInterval: POLL_MS,
  });
}
