import { Table, Text } from "@mantine/core";

import type { Engine, TenantQueue } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { StackedBar, Swatch } from "@/components/figures/stacked-bar";
import { Term } from "@/components/term";
import { counted, grouped, percent, weight } from "@/format/numbers";

import { Holder } from "../holder";
import { byRoster, OTHERS_PAINT, type Roster } from "../roster";
import { serviceShares, type QueueSample } from "./service-share";

const HELP = {
  panel: "Requests of each tenant that are being answered, and those that wait for their turn.",
  weight: "Under load, a tenant of weight 3 is due three times what a tenant of weight 1 is due.",
  due: "The tenant's weight as a part of the weights of all tenants at work now.",
  served:
    "What the tenant received in the last minute, as a part of what all received: computed tokens at the engine's " +
    "prices, while this page was open. A tenant that asks for less than it is due leaves the rest to others.",
};

interface Line {
  key: string;
  who: React.ReactNode;
  paint: string;
  running: number;
  waiting: number;
  /** Of all tenants in the line that are at work; 0 when none is. */
  weight: number;
  weightShown: string;
  served: number | undefined;
}

interface QueuesPanelProps {
  engine: Engine;
  samples: readonly QueueSample[];
  roster: Roster;
}

/** Who has work in the engine: running and waiting as a bar each, what is due, and what was received. */
export function QueuesPanel({ engine, samples, roster }: QueuesPanelProps) {
  const lines = linesOf(engine.queues, serviceShares(samples), roster);
  const longest = Math.max(1, ...lines.map(({ running, waiting }) => running + waiting));
  const weights = lines.reduce((sum, line) => sum + line.weight, 0);
  return (
    <Panel title="Queues by tenant" help={HELP.panel} note={<Key />} testId="queues">
      {lines.length === 0 ? (
        <Empty title="No tenant is at work">
          <Text fz="sm" c="dimmed">
            Running and waiting requests show up here, by tenant.
          </Text>
        </Empty>
      ) : (
        <FigureTable label="Queues by tenant" names={[32, 38]}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Tenant</Table.Th>
              <Table.Th>Running</Table.Th>
              <Table.Th>Waiting</Table.Th>
              <Table.Th visibleFrom="xs">
                <Term help={HELP.weight}>Weight</Term>
              </Table.Th>
              <Table.Th visibleFrom="xs">
                <Term help={HELP.due}>Due</Term>
              </Table.Th>
              <Table.Th>
                <Term help={HELP.served}>Served</Term>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {lines.map((line) => (
              <Row key={line.key} line={line} longest={longest} weights={weights} />
            ))}
          </Table.Tbody>
        </FigureTable>
      )}
    </Panel>
  );
}

function Key() {
  return (
    <span className="queue-key" aria-hidden>
      <Swatch paint="var(--lk-used)" /> running
      <Swatch paint="var(--lk-waits), var(--lk-used)" /> waiting
    </span>
  );
}

function Row({ line, longest, weights }: { line: Line; longest: number; weights: number }) {
  const { who, paint, running, waiting } = line;
  return (
    <Table.Tr data-testid={`queue-${line.key}`}>
      <Table.Td>
        {who}
        <StackedBar
          parts={[
            { key: "running", value: running, paint },
            { key: "waiting", value: waiting, paint: `var(--lk-waits), ${paint}` },
          ]}
          whole={longest}
          height={8}
        />
      </Table.Td>
      <Table.Td>{grouped(running)}</Table.Td>
      <Table.Td>{grouped(waiting)}</Table.Td>
      <Table.Td visibleFrom="xs">{line.weightShown}</Table.Td>
      <Table.Td visibleFrom="xs">{percent(line.weight, line.weight > 0 ? weights : 0)}</Table.Td>
      <Table.Td>{line.served === undefined ? "–" : percent(line.served, 1)}</Table.Td>
    </Table.Tr>
  );
}

function linesOf(queues: readonly TenantQueue[], served: ReadonlyMap<string, number>, roster: Roster): Line[] {
  const { rows, others } = byRoster(roster, queues);
  const lines: Line[] = rows.map(({ tenant, paint, entry }) => ({
    key: tenant,
    who: <Holder tenant={tenant} paint={paint} />,
    paint,
    running: entry?.running ?? 0,
    waiting: entry?.waiting ?? 0,
    weight: entry?.weight ?? 0,
    weightShown: entry ? weight(entry.weight) : "–",
    served: served.get(tenant) ?? (entry && served.size > 0 ? 0 : undefined),
  }));
  if (!roster.crowded) return lines;
  const sum = (figure: (queue: TenantQueue) => number) => others.reduce((total, queue) => total + figure(queue), 0);
  const named = new Set(roster.shown);
  const rest = [...served].filter(([tenant]) => !named.has(tenant));
  const line = {
    key: "others",
    who: <Holder paint={OTHERS_PAINT}>{counted(others.length, "other tenant")}</Holder>,
    paint: OTHERS_PAINT,
    running: sum(({ running }) => running),
    waiting: sum(({ waiting }) => waiting),
    weight: sum(({ weight }) => weight),
    weightShown: "–",
    served: rest.length > 0 ? rest.reduce((total, [, share]) => total + share, 0) : undefined,
  };
  return [...lines, line];
}
