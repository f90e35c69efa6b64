import { Alert, Badge, Group, Paper, Stack, Table, Text, Title, Tooltip } from "@mantine/core";
import { Fragment } from "react";

import type { Adapter, Version } from "@/api/types";
import { Digest } from "@/components/digest";
import { TableScroll } from "@/components/layout/table-scroll";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";
import { dateTime } from "@/format/time";

import { StateBadge } from "./state-badge";

const COLUMNS = 7;

/** One adapter: its name, where its aliases point, and its versions, the newest first. */
export function AdapterPanel({ adapter }: { adapter: Adapter }) {
  const versions = adapter.versions.toSorted((a, b) => b.number - a.number);
  return (
    <Paper withBorder component="section" aria-label={adapter.name} data-testid={`adapter-row-${adapter.name}`}>
      <Group justify="space-between" px="md" pt="sm" pb="xs" gap="xs">
        <div>
          <Title order={2} fz="md">
            {adapter.name}
          </Title>
          {adapter.description && (
            <Text fz="sm" c="dimmed">
              {adapter.description}
            </Text>
          )}
        </div>
        <Aliases aliases={adapter.aliases} />
      </Group>
      <TableScroll label={`Table of ${adapter.name}`}>
        <Table fz="sm" miw={720} aria-label={`Versions of ${adapter.name}`}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={120}>Version</Table.Th>
              <Table.Th w={130}>State</Table.Th>
              <Table.Th ta="right" w={70}>
                Rank
              </Table.Th>
              <Table.Th ta="right" w={110}>
                Size
              </Table.Th>
              <Table.Th>Modules</Table.Th>
              <Table.Th w={160}>Digest</Table.Th>
              <Table.Th w={170}>Created</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {versions.map((version) => (
              <VersionRows key={version.id} version={version} live={adapter.aliases.live === version.number} />
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Paper>
  );
}

function Aliases({ aliases }: { aliases: Adapter["aliases"] }) {
  const entries = Object.entries(aliases);
  if (entries.length === 0) {
    return (
      <Text fz="sm" c="dimmed">
        no alias yet
      </Text>
    );
  }
  return (
    <Group gap={6}>
      {entries.map(([alias, number]) => (
        <Badge key={alias} variant="default">
          {alias} → {number}
        </Badge>
      ))}
    </Group>
  );
}

function VersionRows({ version, live }: { version: Version; live: boolean }) {
  const hasNotes = version.description !== null || version.reject_code !== null || version.warnings.length > 0;
  return (
    <Fragment>
      <Table.Tr style={hasNotes ? { borderBottom: "none" } : undefined}>
        <Table.Td fw={600} style={{ whiteSpace: "nowrap" }}>
          {version.number}
          {live && (
            <Badge ml={8} size="sm" color="wing">
              live
            </Badge>
          )}
        </Table.Td>
        <Table.Td>
          <StateBadge version={version} />
        </Table.Td>
        <Table.Td ta="right">{version.rank ?? "–"}</Table.Td>
        <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
          <Size version={version} />
        </Table.Td>
        <Table.Td>
          <Modules names={version.target_modules} />
        </Table.Td>
        <Table.Td>{version.digest ? <Digest value={version.digest} /> : "–"}</Table.Td>
        <Table.Td style={{ whiteSpace: "nowrap" }}>{dateTime(version.created_at)}</Table.Td>
      </Table.Tr>
      {hasNotes && (
        <Table.Tr>
          <Table.Td colSpan={COLUMNS} pt={0}>
            <Notes version={version} />
          </Table.Td>
        </Table.Tr>
      )}
    </Fragment>
  );
}

function Size({ version }: { version: Version }) {
  if (version.bytes === null) return <>–</>;
  const serving =
    version.serving_bytes === null ? "" : `; ${grouped(version.serving_bytes)} bytes (${humanBytes(version.serving_bytes)}) in the arena`;
  return (
    <Tooltip label={`${grouped(version.bytes)} bytes uploaded${serving}`}>
      <span>{humanBytes(version.bytes)}</span>
    </Tooltip>
  );
}

function Modules({ names }: { names: readonly string[] }) {
  if (names.length === 0) return <>–</>;
  return (
    <Text span fz="xs" c="dimmed">
      {names.map((name) => name.replace(/_proj$/, "")).join(" ")}
    </Text>
  );
}

function Notes({ version }: { version: Version }) {
  return (
    <Stack gap={6} className="notes">
      {version.description !== null && (
        <Text fz="sm" c="dimmed">
          {version.description}
        </Text>
      )}
      {version.reject_code !== null && (
        <Alert
          color={version.state === "rejected" ? "red" : "orange"}
          variant="light"
          p="xs"
          data-testid={`version-reject-${version.adapter}-${version.number}`}
        >
          <Text span ff="monospace" fz="sm" fw={600} mr={8} c="inherit">
            {version.reject_code}
          </Text>
          {version.reject_detail}
        </Alert>
      )}
      {version.warnings.map((warning) => (
        <Alert key={warning} color="yellow" variant="light" p="xs">
          {warning}
        </Alert>
      ))}
    </Stack>
  );
}
