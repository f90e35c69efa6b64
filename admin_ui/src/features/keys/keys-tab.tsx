import { Badge, Group, Stack, Table, Text, VisuallyHidden } from "@mantine/core";

import type { ApiKey } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { QueryState } from "@/components/feedback/query-state";
import { TableScroll } from "@/components/layout/table-scroll";
import { counted } from "@/format/numbers";
import { dateTime } from "@/format/time";

import { CreateKey } from "./create-key";
import { maskedKey } from "./key-shape";
import { RevokeKey } from "./revoke-key";
import { useKeys } from "./use-keys";

export function KeysTab({ slug }: { slug: string }) {
  const query = useKeys(slug);
  return (
    <Stack gap="md" data-testid="keys">
      <Group justify="space-between">
        <Text fz="sm" c="dimmed">
          {query.data ? counted(query.data.data.length, "key") : ""}
        </Text>
        <CreateKey slug={slug} />
      </Group>
      <QueryState query={query}>
        {({ data }) => <Panel flush>{data.length === 0 ? <NoKeys /> : <KeyTable slug={slug} keys={data} />}</Panel>}
      </QueryState>
    </Stack>
  );
}

function NoKeys() {
  return (
    <Empty title="No keys yet">
      <Text fz="sm" c="dimmed" maw={440}>
        A key lets the tenant&apos;s programs send requests and push adapters. Create one; its secret is shown once.
      </Text>
    </Empty>
  );
}

function KeyTable({ slug, keys }: { slug: string; keys: readonly ApiKey[] }) {
  return (
    <TableScroll label="Table of keys">
      <Table highlightOnHover fz="sm" miw={640} aria-label="Keys">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Name</Table.Th>
            <Table.Th>Key</Table.Th>
            <Table.Th>Status</Table.Th>
            <Table.Th>Created</Table.Th>
            <Table.Th>Last used</Table.Th>
            <Table.Th>Expires</Table.Th>
            <Table.Th>
              <VisuallyHidden>Actions</VisuallyHidden>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {keys.map((key) => (
            <Table.Tr key={key.id} data-testid={`key-row-${key.name}`}>
              <Table.Td fw={600}>{key.name}</Table.Td>
              <Table.Td ff="monospace" fz="xs">
                {maskedKey(key)}
              </Table.Td>
              <Table.Td>
                <Badge color={key.status === "active" ? "green" : "gray"}>{key.status}</Badge>
              </Table.Td>
              <When at={key.created_at} otherwise="–" />
              <When at={key.last_used_at} otherwise="never" />
              <When at={key.expires_at} otherwise="never" />
              <Table.Td ta="right">{key.revoked_at === null && <RevokeKey slug={slug} apiKey={key} />}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function When({ at, otherwise }: { at: number | null; otherwise: string }) {
  return <Table.Td style={{ whiteSpace: "nowrap" }}>{at === null ? otherwise : dateTime(at)}</Table.Td>;
}
