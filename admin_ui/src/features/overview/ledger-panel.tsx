import { Alert, Group, Progress, Stack, Table, Text } from "@mantine/core";

import type { Ledger } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { grouped, percent } from "@/format/numbers";

import { LEDGER_STATES, sumOfStates } from "./ledger-states";

interface LedgerPanelProps {
  title: string;
  testId: string;
  /** Absent until the engine is ready. */
  ledger: Ledger | null | undefined;
}

/** One pool: a bar of its five states, the exact figures beneath, their sum, and who holds what. */
export function LedgerPanel({ title, testId, ledger }: LedgerPanelProps) {
  if (!ledger) {
    return (
      <Panel title={title} testId={testId}>
        <Empty title="No figures yet">
          <Text fz="sm" c="dimmed">
            The engine reports this pool once it is ready.
          </Text>
        </Empty>
      </Panel>
    );
  }
  const held = ledger.capacity - ledger.free;
  return (
    <Panel
      title={title}
      testId={testId}
      note={`${humanBytes(held)} of ${humanBytes(ledger.capacity)} held, ${percent(held, ledger.capacity)}`}
    >
      <Stack gap="sm">
        <StateBar title={title} ledger={ledger} />
        <StateTable title={title} ledger={ledger} />
        <TenantShares title={title} ledger={ledger} />
      </Stack>
    </Panel>
  );
}

function StateBar({ title, ledger }: { title: string; ledger: Ledger }) {
  const spoken = LEDGER_STATES.map(({ key, label }) => `${label.toLowerCase()} ${humanBytes(ledger[key])}`).join(", ");
  return (
    <Progress.Root size={18} radius="sm" role="img" aria-label={`${title}: ${spoken}`} bg="var(--lk-free)">
      {LEDGER_STATES.filter(({ key }) => key !== "free" && ledger[key] > 0).map(({ key, color }) => (
        <Progress.Section
          key={key}
          withAria={false}
          value={(100 * ledger[key]) / ledger.capacity}
          color={color}
          // A single used block must not vanish in a large pool.
          miw={3}
        />
      ))}
    </Progress.Root>
  );
}

function Swatch({ color }: { color: string }) {
  return <span aria-hidden style={{ width: 10, height: 10, borderRadius: 3, background: color, flexShrink: 0 }} />;
}

function StateTable({ title, ledger }: { title: string; ledger: Ledger }) {
  const sum = sumOfStates(ledger);
  return (
    <>
      <Table verticalSpacing={4} horizontalSpacing={6} fz="sm" className="figures" aria-label={`${title} by state`}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>State</Table.Th>
            <Table.Th>Size</Table.Th>
            <Table.Th>Bytes</Table.Th>
            <Table.Th visibleFrom="xs">Share</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {LEDGER_STATES.map(({ key, label, color, meaning }) => (
            <Table.Tr key={key} title={meaning}>
              <Table.Td>
                <Group gap={8} wrap="nowrap">
                  <Swatch color={color} />
                  {label}
                </Group>
              </Table.Td>
              <Table.Td>{humanBytes(ledger[key])}</Table.Td>
              <Table.Td data-state={key} data-bytes={ledger[key]}>
                {grouped(ledger[key])}
              </Table.Td>
              <Table.Td visibleFrom="xs">{percent(ledger[key], ledger.capacity)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Th>Sum</Table.Th>
            <Table.Th>{humanBytes(sum)}</Table.Th>
            <Table.Th data-state="sum" data-bytes={sum}>
              {grouped(sum)}
            </Table.Th>
            <Table.Th visibleFrom="xs">{percent(sum, ledger.capacity)}</Table.Th>
          </Table.Tr>
        </Table.Tfoot>
      </Table>
      {sum !== ledger.capacity && (
        <Alert color="red" variant="light" role="alert" title="This ledger does not add up">
          The states sum to {grouped(sum)} bytes, the capacity is {grouped(ledger.capacity)} bytes.
        </Alert>
      )}
      {ledger.fragmentation > 0 && (
        <Text fz="xs" c="dimmed">
          {humanBytes(ledger.fragmentation)} held but unusable inside allocations
        </Text>
      )}
    </>
  );
}

function TenantShares({ title, ledger }: { title: string; ledger: Ledger }) {
  const held = ledger.by_tenant.reduce((sum, { bytes }) => sum + bytes, 0);
  if (held === 0) {
    return (
      <Text fz="sm" c="dimmed">
        No tenant holds anything here now.
      </Text>
    );
  }
  const shares = ledger.by_tenant.toSorted((a, b) => b.bytes - a.bytes);
  return (
    <Table verticalSpacing={4} horizontalSpacing={6} fz="sm" className="figures" aria-label={`${title} by tenant`}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Tenant</Table.Th>
          <Table.Th>Size</Table.Th>
          <Table.Th>Bytes</Table.Th>
          <Table.Th>Of held</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {shares.map(({ tenant, bytes }) => (
          <Table.Tr key={tenant}>
            <Table.Td>{tenant}</Table.Td>
            <Table.Td>{humanBytes(bytes)}</Table.Td>
            <Table.Td>{grouped(bytes)}</Table.Td>
            <Table.Td>{percent(bytes, held)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
