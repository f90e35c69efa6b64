import { SimpleGrid, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Engine } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";

import { ActivityPanel } from "./activity-panel";
import { KnownAdapters } from "./adapters/known-adapters";
import { ResidencyPanel } from "./adapters/residency-panel";
import { LedgerPanel } from "./ledgers/ledger-panel";
import { POOLS } from "./ledgers/pools";
import { PreemptionsPanel } from "./outcomes/preemptions-panel";
import { PrefixPanel } from "./outcomes/prefix-panel";
import { RefusalsPanel } from "./outcomes/refusals-panel";
import { QueuesPanel } from "./queues/queues-panel";
import type { LiveOverview } from "./use-overview";

const PAIR = { cols: { base: 1, md: 2 }, spacing: "md" } as const;

/** Everything the engine tells of itself: what happens now first, then its memory, then how things went. */
export function LivePanels({ live, performance }: { live: LiveOverview; performance: ReactNode }) {
  const { engine } = live.latest;
  const { kv, arena, host, swap, prefix, residency, adapter_traffic, preemptions, refusals } = engine;
  const { roster } = live;
  if (!kv || !arena || !host || !swap || !prefix || !residency || !adapter_traffic || !preemptions || !refusals) {
    return <NoFigures state={engine.state} />;
  }
  return (
    <Stack gap="md">
      <ActivityPanel engine={engine} rates={live.rates} />
      {performance}
      <SimpleGrid {...PAIR}>
        <QueuesPanel engine={engine} samples={live.queues} roster={roster} />
        <ResidencyPanel counts={residency} traffic={adapter_traffic} />
      </SimpleGrid>
      <SimpleGrid {...PAIR}>
        <LedgerPanel {...POOLS.kv} ledger={kv} roster={roster} />
        <LedgerPanel {...POOLS.arena} ledger={arena} roster={roster} />
      </SimpleGrid>
      <SimpleGrid {...PAIR}>
        <PrefixPanel prefix={prefix} roster={roster} />
        <Stack gap="md">
          <RefusalsPanel refusals={refusals} />
          <PreemptionsPanel preemptions={preemptions} />
        </Stack>
      </SimpleGrid>
      <SimpleGrid {...PAIR}>
        <LedgerPanel {...POOLS.host} ledger={host} roster={roster} />
        <LedgerPanel {...POOLS.swap} ledger={swap} roster={roster} />
      </SimpleGrid>
      <KnownAdapters adapters={engine.adapters} />
    </Stack>
  );
}

function NoFigures({ state }: { state: Engine["state"] }) {
  return (
    <Panel testId="no-figures">
      <Empty title={state === "starting" ? "No figures yet" : "No figures"}>
        <Text fz="sm" c="dimmed">
          {state === "starting"
            ? "The engine is starting. Its queues and memory show up here by themselves."
            : "The engine does not answer. This page keeps asking."}
        </Text>
      </Empty>
    </Panel>
  );
}
