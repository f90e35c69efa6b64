import { Alert, Stack, Text } from "@mantine/core";

import type { Ledger } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { grouped, percent } from "@/format/numbers";

import type { Roster } from "../roster";
import { heldByTenants, sumOfStates } from "./ledger-states";
import { StateShares } from "./state-shares";
import { TenantShares } from "./tenant-shares";

export interface LedgerPanelProps {
  title: string;
  help: string;
  /** What a pool without any memory means. */
  absent: string;
  testId: string;
  ledger: Ledger;
  roster: Roster;
}

/** One pool, twice in full: who has its bytes, and what state they are in. */
export function LedgerPanel({ title, help, absent, testId, ledger, roster }: LedgerPanelProps) {
  if (ledger.capacity === 0) {
    return (
      <Panel title={title} help={help} testId={testId}>
        <Empty title="No memory is set aside">
          <Text fz="sm" c="dimmed">
            {absent}
          </Text>
        </Empty>
      </Panel>
    );
  }
  const inUse = ledger.used + ledger.reserved + ledger.in_flight;
  return (
    <Panel
      title={title}
      help={help}
      testId={testId}
      note={`${percent(inUse, ledger.capacity)} in use`}
    >
      <Stack gap="md">
        <TenantShares title={title} ledger={ledger} roster={roster} />
        <StateShares title={title} ledger={ledger} />
        <Imbalance ledger={ledger} />
      </Stack>
    </Panel>
  );
}

function Imbalance({ ledger }: { ledger: Ledger }) {
  const states = sumOfStates(ledger);
  const tenants = heldByTenants(ledger) + ledger.free;
  if (states === ledger.capacity && tenants === ledger.capacity) return null;
  return (
    <Alert color="red" variant="light" role="alert" title="This ledger does not add up">
      The pool has {grouped(ledger.capacity)} bytes. Its states sum to {grouped(states)}, its tenants and the free part
      to {grouped(tenants)}.
    </Alert>
  );
}
