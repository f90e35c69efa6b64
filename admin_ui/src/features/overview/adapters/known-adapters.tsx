import { Badge, Table, Text } from "@mantine/core";

import type { ResidentAdapter } from "@/api/types";
import { Digest } from "@/components/digest";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { TenantLink } from "@/components/tenant-link";
import { humanBytes } from "@/format/bytes";
import { counted, grouped } from "@/format/numbers";

import { residencyOf } from "./states";

/** The adapters that the engine has or is fetching, by name, so that a row stays where it is. */
export function KnownAdapters({ adapters }: { adapters: readonly ResidentAdapter[] }) {
  return (
    <Panel
      title="Known adapters"
      help="Adapters that lie in host memory or in the arena, or are on their way; at most the 100 busiest."
      note={adapters.length > 0 && counted(adapters.length, "adapter")}
      testId="known-adapters"
      flush={adapters.length > 0}
    >
      {adapters.length === 0 ? (
        <Empty title="The engine knows no adapter yet">
          <Text fz="sm" c="dimmed">
            An adapter is loaded by its first request and stays until the room is needed.
          </Text>
        </Empty>
      ) : (
        <TableScroll label="Table of known adapters">
          <AdapterTable adapters={adapters} />
        </TableScroll>
      )}
    </Panel>
  );
}

function AdapterTable({ adapters }: { adapters: readonly ResidentAdapter[] }) {
  const sorted = adapters.toSorted((a, b) => a.tenant.localeCompare(b.tenant) || a.adapter.localeCompare(b.adapter));
  return (
    <Table highlightOnHover fz="sm" miw={640} style={{ whiteSpace: "nowrap" }} aria-label="Known adapters">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Tenant</Table.Th>
          <Table.Th>Adapter</Table.Th>
          <Table.Th w={120}>State</Table.Th>
          <Table.Th ta="right">Size</Table.Th>
          <Table.Th ta="right">Running</Table.Th>
          <Table.Th ta="right">Waiting</Table.Th>
          <Table.Th>Digest</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {sorted.map(({ tenant, adapter, digest, state, bytes, requests, waiting }) => (
          <Table.Tr key={`${tenant}/${digest}`} data-testid={`adapter-${tenant}-${adapter}`}>
            <Table.Td>
              <TenantLink slug={tenant} />
            </Table.Td>
            <Table.Td fw={600}>{adapter}</Table.Td>
            <Table.Td>
              <Badge color={residencyOf(state)?.color ?? "gray"}>{residencyOf(state)?.label ?? state}</Badge>
            </Table.Td>
            <Table.Td ta="right" title={`${grouped(bytes)} bytes`}>
              {humanBytes(bytes)}
            </Table.Td>
            <Table.Td ta="right">{grouped(requests)}</Table.Td>
            <Table.Td ta="right">{grouped(waiting)}</Table.Td>
            <Table.Td>
              <Digest value={digest} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
