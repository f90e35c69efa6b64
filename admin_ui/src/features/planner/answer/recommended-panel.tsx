import { Stack, Table, Text } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { Command } from "@/components/command";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Prose } from "@/components/prose";
import { exactValue, writtenValue } from "@/features/engine/knobs";

const HELP = "What to start an engine for this workload with. A load test has the last say on the tokens a step.";

/** Settings to start the engine with, to be copied together. */
export function RecommendedPanel({ knobs }: { knobs: CapacityPlan["knobs"] }) {
  if (knobs.length === 0) return null;
  const lines = knobs.map(({ setting }) => setting).join("\n");
  return (
    <Panel title="Recommended settings" help={HELP} testId="recommended" flush>
      <TableScroll label="Table of recommended settings">
        <Table fz="sm" miw={520} aria-label="Recommended settings">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Setting</Table.Th>
              <Table.Th ta="right">Value</Table.Th>
              <Table.Th>Why</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {knobs.map(({ name, value, why }) => (
              <Table.Tr key={name} data-testid={`recommended-${name}`}>
                <Table.Td style={{ whiteSpace: "nowrap" }}>{name}</Table.Td>
                <Table.Td ta="right" fw={600} title={exactValue(name, value)} style={{ whiteSpace: "nowrap" }}>
                  {writtenValue(name, value)}
                </Table.Td>
                <Table.Td>
                  <Text fz="sm" c="dimmed">
                    <Prose>{why}</Prose>
                  </Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
      <Stack p="md" pt="xs" align="stretch">
        <Command label="Copy settings">{lines}</Command>
      </Stack>
    </Panel>
  );
}
