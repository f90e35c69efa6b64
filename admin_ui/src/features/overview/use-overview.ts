import { useQuery } from "@tanstack/react-query";

import { http } from "@/api/client";
import type { Overview } from "@/api/types";
import type { Sample } from "@/components/figures/sparkline";

import type { QueueSample } from "./queues/service-share";
import { EMPTY_ROSTER, nextRoster, presence, type Roster } from "./roster";

export const POLL_MS = 2000;
export const WINDOW_MS = 60_000;

/** The newest figures, and what only this page remembers of the last minute. */
export interface LiveOverview {
  latest: Overview;
  rates: Sample[];
  queues: QueueSample[];
  roster: Roster;
}

export function appendRecent<Item extends { at: number }>(samples: readonly Item[], sample: Item): Item[] {
  return [...samples.filter(({ at }) => sample.at - at <= WINDOW_MS), sample];
}

/** An engine that does not answer has no figures: its zeros are not remembered. */
export function remember(before: LiveOverview | undefined, latest: Overview, at: number): LiveOverview {
  const { rates, queues, roster } = before ?? { rates: [], queues: [], roster: EMPTY_ROSTER };
  const { engine } = latest;
  if (engine.state !== "ready") return { latest, rates, queues, roster };
  return {
    latest,
    rates: appendRecent(rates, { at, value: engine.tokens_per_second }),
    queues: appendRecent(queues, { at, queues: engine.queues }),
    roster: nextRoster(roster, presence(engine)),
  };
}

/** The history lies beside the figures in the query's data, so it survives a walk to another page and back. */
export function useOverview() {
  return useQuery({
    queryKey: ["overview"],
    queryFn: async ({ client, queryKey, signal }): Promise<LiveOverview> => {
      const { data } = await http.GET("/admin/v1/overview", { signal });
      if (data === undefined) throw new Error("The overview came back empty.");
      return remember(client.getQueryData<LiveOverview>(queryKey), data, Date.now());
    },
    refetchInterval: POLL_MS,
  });
}
