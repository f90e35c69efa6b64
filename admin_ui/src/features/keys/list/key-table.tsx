import { Anchor, Group, Table, Text, VisuallyHidden } from "@mantine/core";
import { Link } from "wouter";

import type { ApiKey } from "@/api/types";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { counted } from "@/format/numbers";
import { dateTime } from "@/format/time";
import { useNow } from "@/format/use-now";

import { inOrder } from "../scopes";
import { lineage, maskedKey, standing } from "../standing";
import { StandingBadge } from "../standing-badge";
import { RevokeKey } from "../steps/revoke-key";
import { RotateKey } from "../steps/rotate-key";

/** Keys with those of one lineage beside each other, the newest of it first. */
export function KeyTable({ slug, keys }: { slug: string; keys: readonly ApiKey[] }) {
  const heads = keys.filter((key) => lineage(key, keys)[0]?.id === key.id).toSorted((a, b) => b.created_at - a.created_at);
  return (
    <TableScroll label="Table of keys">
      <Table highlightOnHover fz="sm" miw={1020} aria-label="Keys">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Key</Table.Th>
            <Table.Th>Status</Table.Th>
            <Table.Th>May</Table.Th>
            <Table.Th>Only for</Table.Th>
            <Table.Th style={{ whiteSpace: "nowrap" }}>Last used</Table.Th>
            <Table.Th>Expires</Table.Th>
            <Table.Th>
              <VisuallyHidden>Actions</VisuallyHidden>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {heads.flatMap((head) => lineage(head, keys)).map((key) => (
            <KeyRow key={key.id} slug={slug} apiKey={key} />
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function KeyRow({ slug, apiKey }: { slug: string; apiKey: ApiKey }) {
  const at = standing(apiKey, useNow());
  return (
    <Table.Tr data-testid={`key-row-${apiKey.name}`} data-standing={at.word}>
      <Table.Td>
        <Anchor
          component={Link}
          to={`/tenants/${encodeURIComponent(slug)}/keys/${encodeURIComponent(apiKey.id)}`}
          fz="sm"
          fw={600}
          style={{ overflowWrap: "anywhere" }}
        >
          {apiKey.name}
        </Anchor>
        <Text ff="monospace" fz="xs" c="dimmed" style={{ whiteSpace: "nowrap" }}>
          {maskedKey(apiKey)}
        </Text>
      </Table.Td>
      <Table.Td maw={220}>
        <StandingBadge at={at} />
      </Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>
        <Term help={inOrder(apiKey.scopes).join(", ")}>{counted(apiKey.scopes.length, "scope")}</Term>
      </Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>
        <Restrictions apiKey={apiKey} />
      </Table.Td>
      <When at={apiKey.last_used_at} otherwise="never" />
      <When at={apiKey.expires_at} otherwise="never" />
      <Table.Td>
        <Group gap={6} justify="flex-end" wrap="nowrap">
          <RotateKey slug={slug} apiKey={apiKey} offered={at.word === "active"} />
          {at.works && <RevokeKey slug={slug} apiKey={apiKey} />}
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

function Restrictions({ apiKey: { allowed_adapters, ip_allowlist } }: { apiKey: ApiKey }) {
  if (allowed_adapters === null && ip_allowlist === null) return <>–</>;
  return (
    <>
      {allowed_adapters !== null && (
        <div>
          <Term help={allowed_adapters.join(", ")}>{counted(allowed_adapters.length, "adapter")}</Term>
        </div>
      )}
      {ip_allowlist !== null && (
        <div>
          <Term help={ip_allowlist.join(", ")}>{counted(ip_allowlist.length, "network")}</Term>
        </div>
      )}
    </>
  );
}

function When({ at, otherwise }: { at: number | null; otherwise: string }) {
  return <Table.Td style={{ whiteSpace: "nowrap" }}>{at === null ? otherwise : dateTime(at)}</Table.Td>;
}
