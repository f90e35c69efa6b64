import { Table } from "@mantine/core";
import { Fragment } from "react";

import type { Refusals } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { grouped } from "@/format/numbers";

import { ENGINE_FULL, FAULTS, inWords, total, unnamed, type Counted } from "./reasons";

const HELP = {
  panel: "Requests that were not taken, by whose limit they met. Each was told when to come back.",
  expired: "Taken, but dropped in the queue, because the first token could no longer come in time. Answered 504.",
};

/** Who was sent away and who is at fault, and those that waited in vain. */
export function RefusalsPanel({ refusals }: { refusals: Refusals }) {
  const { by_reason: counts, expired } = refusals;
  const unknown = unnamed(counts, FAULTS.flatMap(({ reasons }) => reasons));
  return (
    <Panel title="Refusals" help={HELP.panel} note="since the engine's start" testId="refusals">
      <FigureTable label="Refusals by reason" names={[60, 54]}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Whose limit</Table.Th>
            <Table.Th w={62}>Answer</Table.Th>
            <Table.Th>Requests</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {FAULTS.map(({ who, status, meaning, reasons }) => {
            const lines = [...inWords(counts, reasons), ...(reasons === ENGINE_FULL.reasons ? unknown : [])];
            return (
              <Fragment key={who}>
                <Group who={who} help={meaning} status={status} n={total(lines)} />
                {lines.map((line) => (
                  <Line key={line.code} line={line} />
                ))}
              </Fragment>
            );
          })}
          <Group who="Expired in the queue" help={HELP.expired} status={504} n={expired} />
        </Table.Tbody>
      </FigureTable>
    </Panel>
  );
}

function Group({ who, help, status, n }: { who: string; help: string; status: number; n: number }) {
  return (
    <Table.Tr fw={600} data-fault={who}>
      <Table.Td>
        <Term help={help}>{who}</Term>
      </Table.Td>
      <Table.Td>{status}</Table.Td>
      <Table.Td>{grouped(n)}</Table.Td>
    </Table.Tr>
  );
}

function Line({ line: { code, words, n } }: { line: Counted }) {
  return (
    <Table.Tr data-refusal={code} data-idle={n === 0 || undefined}>
      <Table.Td colSpan={2} pl="lg">
        {words}
      </Table.Td>
      <Table.Td>{grouped(n)}</Table.Td>
    </Table.Tr>
  );
}
