import { Alert, Anchor, Group, Stack, Table, Text, Tooltip, VisuallyHidden } from "@mantine/core";
import { Fragment } from "react";
import { Link } from "wouter";

import type { Adapter, Alias, Engine, Version } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { humanBytes } from "@/format/bytes";
import { counted, grouped } from "@/format/numbers";
import { dateTime } from "@/format/time";
import { useOverview } from "@/features/overview/use-overview";

import { versionAddress } from "../addresses";
import { AliasBadges } from "../alias-badges";
import { CertificateSummary } from "../certificate-summary";
import { VersionMenu } from "../lifecycle/version-steps";
import { residence } from "../residency";
import { ResidencyBadge } from "../residency-badge";
import { StateBadge } from "../state-badge";
import { shownVersions } from "../states";
import { shortModule } from "../version/reading";

const COLUMNS = 9;

export function VersionsPanel({ slug, adapter }: { slug: string; adapter: Adapter }) {
  const engine = useOverview().data?.latest.engine;
  const { kept, deleted } = shownVersions(adapter.versions);
  return (
    <Panel
      title="Versions"
      testId="versions"
      note={deleted.length > 0 && `${counted(deleted.length, "version")} deleted`}
      flush
    >
      {kept.length === 0 ? (
        <Empty title="No version left">
          <Text fz="sm" c="dimmed">
            Every version was deleted. Upload a new one, or delete the adapter.
          </Text>
        </Empty>
      ) : (
        <TableScroll label={`Table of the versions of ${adapter.name}`}>
          <Table fz="sm" miw={1020} aria-label={`Versions of ${adapter.name}`}>
            <Head />
            <Table.Tbody>
              {kept.map((version) => (
                <VersionRows key={version.id} slug={slug} version={version} aliases={adapter.aliases} engine={engine} />
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      )}
    </Panel>
  );
}

function Head() {
  return (
    <Table.Thead>
      <Table.Tr>
        <Table.Th w={150}>Version</Table.Th>
        <Table.Th w={120}>State</Table.Th>
        <Table.Th w={110}>Residency</Table.Th>
        <Table.Th ta="right" w={60}>
          Rank
        </Table.Th>
        <Table.Th ta="right" w={95}>
          Size
        </Table.Th>
        <Table.Th>Modules</Table.Th>
        <Table.Th>Certificate</Table.Th>
        <Table.Th w={170}>Created</Table.Th>
        <Table.Th w={60}>
          <VisuallyHidden>Steps</VisuallyHidden>
        </Table.Th>
      </Table.Tr>
    </Table.Thead>
  );
}

interface VersionRowsProps {
  slug: string;
  version: Version;
  aliases: readonly Alias[];
  engine: Engine | undefined;
}

function VersionRows({ slug, version, aliases, engine }: VersionRowsProps) {
  const hasNotes = version.description !== null || version.reject_detail !== null || version.retire_reason !== null;
  return (
    <Fragment>
      <Table.Tr
        style={hasNotes ? { borderBottom: "none" } : undefined}
        data-testid={`version-row-${version.adapter}-${version.number}`}
      >
        <Table.Td>
          <Group gap={6} miw={118}>
            <Anchor component={Link} to={versionAddress(slug, version.adapter, version.number)} fz="sm" fw={600}>
              Version {version.number}
            </Anchor>
            <AliasBadges number={version.number} aliases={aliases} />
          </Group>
        </Table.Td>
        <Table.Td>
          <StateBadge version={version} />
        </Table.Td>
        <Table.Td>
          <ResidencyBadge at={residence(engine, slug, version)} />
        </Table.Td>
        <Table.Td ta="right">{version.rank ?? "–"}</Table.Td>
        <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
          <Size version={version} />
        </Table.Td>
        <Table.Td>
          <Modules names={version.target_modules} />
        </Table.Td>
        <Table.Td>
          <CertificateSummary version={version} />
        </Table.Td>
        <Table.Td>
          <span style={{ whiteSpace: "nowrap" }}>{dateTime(version.created_at)}</span>
          <Text fz="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
            {version.created_by}
          </Text>
        </Table.Td>
        <Table.Td ta="right">
          <VersionMenu slug={slug} version={version} aliases={aliases} />
        </Table.Td>
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
    <Text span fz="xs" c="dimmed" title={names.join(", ")}>
      {names.map(shortModule).join(" ")}
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
      {version.reject_detail !== null && (
        <Alert
          color={version.state === "rejected" ? "red" : "orange"}
          variant="light"
          p="xs"
          data-testid={`version-reject-${version.adapter}-${version.number}`}
        >
          <Text span ff="monospace" fz="sm" fw={600} mr={8} c="inherit">
            {version.reject_code}
          </Text>
          <span style={{ overflowWrap: "anywhere" }}>{version.reject_detail}</span>
        </Alert>
      )}
      {version.retire_reason !== null && (
        <Text fz="sm" c="dimmed">
          {version.state === "quarantined" ? "Quarantined" : "Retired"}: {version.retire_reason}
        </Text>
      )}
    </Stack>
  );
}
