import { Badge, Code, Group, Table, Text } from "@mantine/core";

import type { Knob } from "@/api/types";
import { CopyControl } from "@/components/copy-control";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { counted } from "@/format/numbers";

import { exactValue, meaningOf, writtenValue } from "./knobs";

const HELP = "What the engine was started with. A change takes effect at its next start.";

/** Every setting of the engine, with its name in the environment and whether its value was chosen by itself. */
export function KnobsPanel({ knobs }: { knobs: readonly Knob[] }) {
  return (
    <Panel title="Settings" help={HELP} note={counted(knobs.length, "setting")} testId="knobs" flush>
      <TableScroll label="Table of settings">
        <Table fz="sm" miw={720} verticalSpacing={5} highlightOnHover aria-label="Settings of the engine">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Setting</Table.Th>
              <Table.Th ta="right">Value</Table.Th>
              <Table.Th w={110}>Chosen</Table.Th>
              <Table.Th>In the environment</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {knobs.map((knob) => (
              <Row key={knob.name} knob={knob} />
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Panel>
  );
}

function Row({ knob: { name, setting, value, is_automatic } }: { knob: Knob }) {
  const meaning = meaningOf(name);
  return (
    <Table.Tr data-testid={`knob-${name}`}>
      <Table.Td>{meaning === undefined ? name : <Term help={meaning}>{name}</Term>}</Table.Td>
      <Table.Td ta="right" fw={600} title={exactValue(name, value)} style={{ whiteSpace: "nowrap" }}>
        {writtenValue(name, value)}
      </Table.Td>
      <Table.Td>
        <Origin isAutomatic={is_automatic} />
      </Table.Td>
      <Table.Td>
        <Group gap={4} wrap="nowrap">
          <Code bg="transparent" p={0} fz="xs">
            {setting}
          </Code>
          <CopyControl value={`${setting}=${String(value)}`} label={`Copy ${setting}`} />
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

/** Nothing where it is not known. */
function Origin({ isAutomatic }: { isAutomatic: boolean | null }) {
  if (isAutomatic === null) return null;
  if (isAutomatic) return <Badge color="blue">automatic</Badge>;
  return (
    <Text span fz="sm" c="dimmed">
      as set
    </Text>
  );
}
