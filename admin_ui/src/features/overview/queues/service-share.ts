import type { TenantQueue } from "@/api/types";

/** The queues as one poll saw them. */
export interface QueueSample {
  at: number;
  queues: readonly TenantQueue[];
}

/**
 * What each tenant received between the first and the last sample, as a part of what all received.
 *
 * The engine's counters are tokens divided by weight. A tenant counts only while it is at work in two samples in a row,
 * because an idle tenant's counter is moved, not served; a counter that falls belongs to an engine that started anew.
 */
export function serviceShares(samples: readonly QueueSample[]): Map<string, number> {
  const received = new Map<string, number>();
  samples.slice(1).forEach(({ queues }, index) => {
    const before = new Map(samples[index]?.queues.map(({ tenant, service }) => [tenant, service]));
    for (const { tenant, service, weight } of queues) {
      const grown = service - (before.get(tenant) ?? service);
      if (grown > 0) received.set(tenant, (received.get(tenant) ?? 0) + grown * weight);
    }
  });
  const all = [...received.values()].reduce((sum, tokens) => sum + tokens, 0);
  return new Map([...received].map(([tenant, tokens]) => [tenant, tokens / all]));
}
