import { Anchor, Group, Table, Text, Tooltip } from "@mantine/core";
import { Link } from "wouter";

import type { Adapter, Engine, Version } from "@/api/types";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";
import { useOverview } from "@/features/overview/use-overview";

import { adapterAddress } from "../addresses";
import { residenceOfAdapter } from "../residency";
import { Heat, ResidencyBadge } from "../residency-badge";
import { StateBadge } from "../state-badge";
import { shownVersions } from "../states";

const HELP = {
  state: "Of the newest version.",
  rank: "The largest rank of the newest version.",
  size: "The files of all versions together.",
  residency: "Where the engine has the nearest of its versions.",
  heat: "Requests a minute that started on it of late.",
};

export function AdapterTable({ slug, adapters }: { slug: string; adapters: readonly Adapter[] }) {
  const engine = useOverview().data?.latest.engine;
  const sorted = adapters.toSorted((a, b) => a.name.localeCompare(b.name));
  return (
    <TableScroll label="Table of adapters">
      <Table highlightOnHover fz="sm" miw={900} aria-label="Adapters">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Name</Table.Th>
            <Table.Th w={120}>
              <Term help={HELP.state}>State</Term>
            </Table.Th>
            <Table.Th ta="right" w={100}>
              Versions
            </Table.Th>
            <Table.Th w={190}>Live</Table.Th>
            <Table.Th ta="right" w={80}>
              <Term help={HELP.rank}>Rank</Term>
            </Table.Th>
            <Table.Th ta="right" w={110}>
              <Term help={HELP.size}>Size</Term>
            </Table.Th>
            <Table.Th w={130}>
              <Term help={HELP.residency}>Residency</Term>
            </Table.Th>
            <Table.Th ta="right" w={90}>
              <Term help={HELP.heat}>Heat</Term>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {sorted.map((adapter) => (
            <AdapterRow key={adapter.id} slug={slug} adapter={adapter} engine={engine} />
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function AdapterRow({ slug, adapter, engine }: { slug: string; adapter: Adapter; engine: Engine | undefined }) {
  const { kept } = shownVersions(adapter.versions);
  const newest = kept[0];
  const at = residenceOfAdapter(engine, slug, kept);
  return (
    <Table.Tr data-testid={`adapter-row-${adapter.name}`}>
      <Table.Td maw={320}>
        <Anchor component={Link} to={adapterAddress(slug, adapter.name)} fz="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
          {adapter.name}
        </Anchor>
        {adapter.description && (
          <Text fz="xs" c="dimmed" truncate title={adapter.description}>
            {adapter.description}
          </Text>
        )}
      </Table.Td>
      <Table.Td>{newest === undefined ? "–" : <StateBadge version={newest} />}</Table.Td>
      <Table.Td ta="right">{grouped(kept.length)}</Table.Td>
      <Table.Td>
        <Live adapter={adapter} />
      </Table.Td>
      <Table.Td ta="right">{newest?.rank ?? "–"}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
        <Size versions={kept} />
      </Table.Td>
      <Table.Td>
        <ResidencyBadge at={at} />
      </Table.Td>
      <Table.Td ta="right">
        <Heat at={at} />
      </Table.Td>
    </Table.Tr>
  );
}

/** What a request for the bare name gets, and how many other aliases there are. */
function Live({ adapter }: { adapter: Adapter }) {
  const live = adapter.aliases.find(({ alias }) => alias === "live");
  const others = adapter.aliases.filter(({ alias }) => alias !== "live");
  return (
    <Group gap="xs" data-testid={`live-${adapter.name}`}>
      {live === undefined ? (
        <Text span fz="sm" c="dimmed">
          nothing
        </Text>
      ) : (
        live.targets.map(({ version, weight }) => (
          <span key={version} style={{ whiteSpace: "nowrap" }}>
            → {version}
            {live.targets.length > 1 && (
              <Text span fz="xs" c="dimmed">
                {" "}
                {weight} %
              </Text>
            )}
          </span>
        ))
      )}
      {others.length > 0 && (
        <Tooltip label={others.map(({ alias }) => alias).join(", ")} multiline maw={300}>
          <Text span fz="xs" c="dimmed">
            +{others.length}
          </Text>
        </Tooltip>
      )}
    </Group>
  );
}

function Size({ versions }: { versions: readonly Version[] }) {
  const bytes = versions.reduce((sum, version) => sum + (version.bytes ?? 0), 0);
  if (bytes === 0) return <>–</>;
  return (
    <Tooltip label={`${grouped(bytes)} bytes uploaded`}>
      <span>{humanBytes(bytes)}</span>
    </Tooltip>
  );
}
