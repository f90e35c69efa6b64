import { Button, Table, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";

import type { Version } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { counted } from "@/format/numbers";

import { configRows } from "./reading";

const HELP = "What adapter_config.json says, as it was understood. The truth is the tensors; the configuration was checked against them.";

export function ConfigPanel({ config }: { config: NonNullable<Version["config"]> }) {
  const [showsAll, { toggle }] = useDisclosure(false);
  const { said, empty } = configRows(config);
  const rows = showsAll ? [...said, ...empty] : said;
  return (
    <Panel
      title="Configuration"
      help={HELP}
      testId="config"
      flush
      note={
        empty.length > 0 && (
          <Button size="compact-sm" variant="subtle" color="gray" onClick={toggle} aria-expanded={showsAll}>
            {showsAll ? "Hide what is off" : `Show ${counted(empty.length, "field")} that ${empty.length === 1 ? "is" : "are"} off`}
          </Button>
        )
      }
    >
      <Table fz="sm" layout="fixed" verticalSpacing={5} aria-label="Configuration">
        <Table.Thead>
          <Table.Tr>
            <Table.Th w="40%">Field</Table.Th>
            <Table.Th>Value</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ field, value }) => (
            <Table.Tr key={field}>
              <Table.Td>
                <Text span ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
                  {field}
                </Text>
              </Table.Td>
              <Table.Td>
                <Text span ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
                  {value}
                </Text>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}
