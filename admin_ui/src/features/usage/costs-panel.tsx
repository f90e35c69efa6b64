import { SimpleGrid, Stack, Table, Text } from "@mantine/core";

import type { UsageRow } from "@/api/types";
import { Figure } from "@/components/figures/figure";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { counted, grouped, percent } from "@/format/numbers";

import { byteHours, flops, flopsOf, readOf, wholeBytes, type Costs } from "./costs";
import { byGroup, totals, type Group, type Totals } from "./series";
import { NAMES } from "./usage-tables";

const HELP = {
  panel: "What the requests took of the engine, by estimate from the steps that ran. What requests shared is divided among them, so that all together add up to the engine.",
  flops: "Operations for prompts and answers, with those of adapters.",
  read: "Weights, keys and values, and adapters that were read from memory; a step's requests share the weights.",
  kv: "Memory for keys and values, times how long it was held or promised: a GiB for an hour is 1 GiB·h.",
  adapters: "Memory of the arena, times how long requests ran on the adapter in it; requests on one adapter share it.",
  loads: "Adapters that were copied into the arena because a request asked for them.",
  again: "The part of the arithmetic that a preemption had thrown away and that was done again.",
  swapped: "Keys and values that preemptions copied to host memory and back.",
};

/** What it took to answer: arithmetic, memory read, and memory held over time. */
export function CostsPanel({ rows }: { rows: readonly Totals[] }) {
  const { costs, requests, requests_without_cost } = totals(rows);
  return (
    <Panel title="Costs" help={HELP.panel} note={unknown(requests, requests_without_cost)} testId="usage-costs">
      <SimpleGrid cols={{ base: 2, sm: 3, md: 4 }} spacing="md">
        <Figure
          term="Arithmetic"
          help={HELP.flops}
          value={flops(flopsOf(costs))}
          note={`${percent(costs.prefill_flops, flopsOf(costs))} for prompts`}
          testId="cost-flops"
        />
        <Figure
          term="Memory read"
          help={HELP.read}
          value={wholeBytes(readOf(costs))}
          note={`${percent(costs.prefill_read_bytes, readOf(costs))} for prompts`}
          testId="cost-read"
        />
        <Figure
          term="KV held"
          help={HELP.kv}
          value={byteHours(costs.kv_byte_seconds)}
          note={`${wholeBytes(costs.write_bytes)} written`}
          testId="cost-kv"
        />
        <Figure
          term="Adapters held"
          help={HELP.adapters}
          value={byteHours(costs.adapter_byte_seconds)}
          note="in the arena"
          testId="cost-adapters"
        />
        <Figure term="Adapters loaded" help={HELP.loads} value={wholeBytes(costs.load_bytes)} note="into the arena" testId="cost-loads" />
        <Figure
          term="Done again"
          help={HELP.again}
          value={flops(costs.wasted_flops)}
          note={`${percent(costs.wasted_flops, flopsOf(costs))} of the arithmetic`}
          testId="cost-again"
        />
        <Figure term="Swapped" help={HELP.swapped} value={wholeBytes(costs.swap_bytes)} note="out and back" testId="cost-swapped" />
      </SimpleGrid>
    </Panel>
  );
}

function unknown(requests: number, without: number): string | null {
  if (without === 0) return null;
  return `without ${grouped(without)} of ${counted(requests, "request")} whose costs are not known`;
}

/** The same by group. */
export function CostsTable({ rows, by }: { rows: readonly UsageRow[]; by: Group }) {
  const groups = byGroup(rows, by);
  return (
    <Panel title={`Costs by ${by}`} note={counted(groups.length, by)} flush testId="usage-cost-groups">
      <TableScroll label={`Table of costs by ${by}`}>
        <Table highlightOnHover fz="sm" miw={760} aria-label={`Costs by ${by}`} className="figure-columns">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{NAMES[by]}</Table.Th>
              {COLUMNS.map(({ term, help }) => (
                <Table.Th key={term}>
                  <Term help={help}>{term}</Term>
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {groups.map(({ id, name, figures }) => (
              <Table.Tr key={id} data-testid={`cost-${by}-${name}`}>
                <Table.Td>{name}</Table.Td>
                <Cells costs={figures.costs} />
              </Table.Tr>
            ))}
          </Table.Tbody>
          <Table.Tfoot>
            <Table.Tr>
              <Table.Td>Together</Table.Td>
              <Cells costs={totals(rows).costs} />
            </Table.Tr>
          </Table.Tfoot>
        </Table>
      </TableScroll>
      {groups.length > 1 && (
        <Stack px="md" py="xs">
          <Text fz="xs" c="dimmed">
            Requests that shared a step are charged their part of it: the rows add up to the last one.
          </Text>
        </Stack>
      )}
    </Panel>
  );
}

const COLUMNS: readonly { term: string; help: string; cell: (costs: Costs) => string }[] = [
  { term: "Arithmetic", help: HELP.flops, cell: (costs) => flops(flopsOf(costs)) },
  { term: "Memory read", help: HELP.read, cell: (costs) => wholeBytes(readOf(costs)) },
  { term: "KV held", help: HELP.kv, cell: ({ kv_byte_seconds }) => byteHours(kv_byte_seconds) },
  { term: "Adapters held", help: HELP.adapters, cell: ({ adapter_byte_seconds }) => byteHours(adapter_byte_seconds) },
  { term: "Loaded", help: HELP.loads, cell: ({ load_bytes }) => wholeBytes(load_bytes) },
  { term: "Done again", help: HELP.again, cell: ({ wasted_flops }) => flops(wasted_flops) },
  { term: "Swapped", help: HELP.swapped, cell: ({ swap_bytes }) => wholeBytes(swap_bytes) },
];

function Cells({ costs }: { costs: Costs }) {
  return COLUMNS.map(({ term, cell }) => <Table.Td key={term}>{cell(costs)}</Table.Td>);
}
