import { SimpleGrid, Table, Text } from "@mantine/core";

import type { Certificate } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

import { moduleRows, rankRows } from "./reading";

/** Which modules the adapter touches in how many layers, and with which ranks. */
export function ShapePanel({ certificate }: { certificate: Certificate }) {
  const modules = moduleRows(certificate.modules);
  return (
    <Panel
      title="Shape"
      testId="shape"
      note={<span title={`${grouped(certificate.serving_bytes)} bytes`}>{humanBytes(certificate.serving_bytes)} in the arena</span>}
    >
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing={48} style={{ alignItems: "start" }}>
        <FigureTable label="Modules" names={[60, 60]}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Module</Table.Th>
              <Table.Th>Layers</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {modules.map(({ module, layers }) => (
              <Table.Tr key={module} data-module={module}>
                <Table.Td>
                  <Text span ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
                    {module}
                  </Text>
                </Table.Td>
                <Table.Td>
                  {grouped(layers)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </FigureTable>
        <FigureTable label="Ranks" names={[60, 60]}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Rank</Table.Th>
              <Table.Th>Pairs</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rankRows(certificate.ranks).map(([rank, pairs]) => (
              <Table.Tr key={rank}>
                <Table.Td>{rank}</Table.Td>
                <Table.Td>{grouped(pairs)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </FigureTable>
      </SimpleGrid>
    </Panel>
  );
}
