import { Alert, Group, Stack, Table, Text } from "@mantine/core";

import type { MemoryRow } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { StackedBar, Swatch } from "@/components/figures/stacked-bar";
import { humanBytes } from "@/format/bytes";
import { grouped, percent } from "@/format/numbers";

const HUES = 6;
/** The engine's name for what is set aside for nothing. */
const LEFT = "left";

interface MemoryTableProps {
  label: string;
  rows: readonly MemoryRow[];
  available: number;
}

function paintOf(name: string, at: number): string {
  if (name === LEFT) return "var(--lk-free)";
  return at < HUES ? `var(--lk-tenant-${at + 1})` : "var(--lk-others)";
}

/** What the memory is set aside for, to the byte: the rows add up to what there is, or the table says that they do not. */
export function MemoryTable({ label, rows, available }: MemoryTableProps) {
  const painted = rows.map((row, at) => ({ ...row, paint: paintOf(row.name, at) }));
  const sum = rows.reduce((total, { bytes }) => total + bytes, 0);
  return (
    <Stack gap="sm">
      <StackedBar
        label={`${label}: ${rows.map(({ name, bytes }) => `${name} ${humanBytes(bytes)}`).join(", ")}`}
        parts={painted.map(({ name, bytes, paint }) => ({ key: name, value: bytes, paint }))}
        whole={Math.max(available, sum, 1)}
      />
      <FigureTable label={label} names={[38, 38]}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>For</Table.Th>
            <Table.Th w={84}>Size</Table.Th>
            <Table.Th visibleFrom="xs">Bytes</Table.Th>
            <Table.Th w={70}>Share</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {painted.map(({ name, bytes, paint }) => (
            <Table.Tr key={name} data-memory={name} data-bytes={bytes}>
              <Table.Td>
                <Group gap={8} wrap="nowrap" miw={0}>
                  <Swatch paint={paint} />
                  <Text span fz="sm" style={{ overflowWrap: "anywhere" }}>
                    {name}
                  </Text>
                </Group>
              </Table.Td>
              <Figures bytes={bytes} available={available} />
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr data-memory="available" data-bytes={available}>
            <Table.Td>Available</Table.Td>
            <Figures bytes={available} available={available} />
          </Table.Tr>
        </Table.Tfoot>
      </FigureTable>
      {sum !== available && (
        <Alert color="red" variant="light" role="alert" title="This table does not add up">
          The rows sum to {grouped(sum)} bytes, available are {grouped(available)}.
        </Alert>
      )}
    </Stack>
  );
}

function Figures({ bytes, available }: { bytes: number; available: number }) {
  return (
    <>
      <Table.Td title={`${grouped(bytes)} bytes`}>{humanBytes(bytes)}</Table.Td>
      <Table.Td visibleFrom="xs">{grouped(bytes)}</Table.Td>
      <Table.Td>{percent(bytes, available)}</Table.Td>
    </>
  );
}
