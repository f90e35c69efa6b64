import { Badge, Table, Text } from "@mantine/core";

import type { ResidentAdapter } from "@/api/types";
import { Digest } from "@/components/digest";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { TenantLink } from "@/components/tenant-link";
import { humanBytes } from "@/format/bytes";
import { counted, grouped } from "@/format/numbers";

const COLORS: Record<string, string> = { used: "green", cached: "gray", in_flight: "blue", loading: "blue" };

/** The adapters whose bytes lie in the arena now. */
export function ResidentAdapters({ adapters }: { adapters: readonly ResidentAdapter[] }) {
  return (
    <Panel
      title="Resident adapters"
      note={adapters.length > 0 && counted(adapters.length, "adapter")}
      testId="resident-adapters"
      flush={adapters.length > 0}
    >
      {adapters.length === 0 ? (
        <Empty title="No adapter is in the arena">
          <Text fz="sm" c="dimmed">
            An adapter is loaded by its first request and stays until the room is needed.
          </Text>
        </Empty>
      ) : (
        <TableScroll label="Table of resident adapters">
          <ResidentTable adapters={adapters} />
        </TableScroll>
      )}
    </Panel>
  );
}

function ResidentTable({ adapters }: { adapters: readonly ResidentAdapter[] }) {
  return (
    <Table highlightOnHover fz="sm" miw={640} style={{ whiteSpace: "nowrap" }} aria-label="Resident adapters">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Tenant</Table.Th>
          <Table.Th>Adapter</Table.Th>
          <Table.Th>State</Table.Th>
          <Table.Th ta="right">Size</Table.Th>
          <Table.Th ta="right">Bytes</Table.Th>
          <Table.Th ta="right">Requests</Table.Th>
          <Table.Th>Digest</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {adapters.map(({ tenant, adapter, digest, state, bytes, requests }) => (
          <Table.Tr key={`${tenant}/${digest}`} data-testid={`resident-${tenant}-${adapter}`}>
            <Table.Td>
              <TenantLink slug={tenant} />
            </Table.Td>
            <Table.Td fw={600}>{adapter}</Table.Td>
            <Table.Td>
              <Badge color={COLORS[state] ?? "gray"}>{state.replaceAll("_", " ")}</Badge>
            </Table.Td>
            <Table.Td ta="right">{humanBytes(bytes)}</Table.Td>
            <Table.Td ta="right">{grouped(bytes)}</Table.Td>
            <Table.Td ta="right">{grouped(requests)}</Table.Td>
            <Table.Td>
              <Digest value={digest} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
