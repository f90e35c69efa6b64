import { Badge, Table, Text } from "@mantine/core";

import type { Chore } from "@/api/types";
import { QueryState } from "@/components/feedback/query-state";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { dateTime, duration } from "@/format/time";
import { useNow } from "@/format/use-now";

import { useChores } from "./use-jobs";

/** What comes round by itself; one process at a time does each. */
export function ChoresPanel() {
  const query = useChores();
  return (
    <Panel
      title="Chores"
      help="Regular work that exactly one process does at a time. When it is due outlives restarts."
      flush
      testId="chores"
    >
      <QueryState query={query}>{({ data }) => <ChoreTable chores={data} />}</QueryState>
    </Panel>
  );
}

function ChoreTable({ chores }: { chores: readonly Chore[] }) {
  const now = useNow();
  return (
    <TableScroll label="Table of chores">
      <Table highlightOnHover fz="sm" miw={760} aria-label="Chores" layout="fixed">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Chore</Table.Th>
            <Table.Th w={110}>State</Table.Th>
            <Table.Th w={170}>Last done</Table.Th>
            <Table.Th w={130}>Due</Table.Th>
            <Table.Th>Last result</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {chores
            .toSorted((a, b) => a.name.localeCompare(b.name))
            .map((chore) => (
              <Table.Tr key={chore.name} data-testid={`chore-${chore.name}`}>
                <Table.Td fw={600}>{chore.name}</Table.Td>
                <Table.Td>
                  <ChoreBadge chore={chore} />
                </Table.Td>
                <Table.Td style={{ whiteSpace: "nowrap" }}>
                  {chore.finished_at === null ? "never" : dateTime(chore.finished_at)}
                </Table.Td>
                <Table.Td style={{ whiteSpace: "nowrap" }}>
                  {chore.due_at <= now ? "now" : `in ${duration(chore.due_at - now)}`}
                </Table.Td>
                <Table.Td>
                  <Result chore={chore} />
                </Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function ChoreBadge({ chore: { running, error, finished_at } }: { chore: Chore }) {
  if (running) return <Badge color="yellow">running</Badge>;
  if (error !== null) return <Badge color="red">failed</Badge>;
  return finished_at === null ? <Badge color="gray">not yet</Badge> : <Badge color="green">well</Badge>;
}

function Result({ chore: { error, result } }: { chore: Chore }) {
  const words = error ?? Object.entries(result ?? {}).map(([name, value]) => `${name} ${String(value)}`).join(", ");
  return (
    <Text fz="sm" c={error === null ? undefined : "red"} lineClamp={2} title={words}>
      {words === "" ? "–" : words}
    </Text>
  );
}
