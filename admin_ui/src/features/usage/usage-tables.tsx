import { Table } from "@mantine/core";

import type { UsageRow } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { counted, grouped, percent } from "@/format/numbers";

import { bucketLabel, type Bucket } from "./periods";
import { byGroup, nameOf, tokensOf, totals, type Group, type Totals } from "./series";

const HELP = {
  errors: "Of the requests, those that did not end well.",
  cached: "The part of the prompt tokens that the prefix cache had.",
};
const MOST_ROWS = 200;

/** What each group used in the whole period, and its share of the tokens. */
export function GroupTable({ rows, by }: { rows: readonly UsageRow[]; by: Group }) {
  const whole = totals(rows);
  const groups = byGroup(rows, by);
  return (
    <Panel title={`By ${by}`} note={counted(groups.length, by)} flush testId="usage-groups">
      <TableScroll label={`Table of usage by ${by}`}>
        <Table highlightOnHover fz="sm" miw={760} aria-label={`Usage by ${by}`} className="figure-columns">
          <Head first={NAMES[by]} last="Share" />
          <Table.Tbody>
            {groups.map(({ id, name, figures }) => (
              <Table.Tr key={id} data-testid={`usage-${by}-${name}`}>
                <Table.Td>{name}</Table.Td>
                <Figures figures={figures} />
                <Table.Td>{percent(tokensOf(figures), tokensOf(whole))}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
          <Table.Tfoot>
            <Table.Tr>
              <Table.Td>Together</Table.Td>
              <Figures figures={whole} />
              <Table.Td />
            </Table.Tr>
          </Table.Tfoot>
        </Table>
      </TableScroll>
    </Panel>
  );
}

interface BucketTableProps {
  rows: readonly UsageRow[];
  by: Group | null;
  bucket: Bucket;
}

/** Bucket by bucket, the newest first; the file has those that do not fit. */
export function BucketTable({ rows, by, bucket }: BucketTableProps) {
  const sorted = rows.toSorted((a, b) => b.bucket_start - a.bucket_start || tokensOf(b) - tokensOf(a));
  const shown = sorted.slice(0, MOST_ROWS);
  const note = shown.length < sorted.length ? `the newest ${grouped(shown.length)} of ${grouped(sorted.length)}` : counted(sorted.length, "row");
  const unit = bucket === "1h" ? "hour" : "day";
  return (
    <Panel title={`By ${unit}`} note={`${note} · UTC`} flush testId="usage-buckets">
      <TableScroll label={`Table of usage by ${unit}`}>
        <Table highlightOnHover fz="sm" miw={760} aria-label={`Usage by ${unit}`} className="figure-columns">
          <Head first={bucket === "1h" ? "Hour" : "Day"} second={by === null ? null : NAMES[by]} />
          <Table.Tbody>
            {shown.map((row, at) => (
              <Table.Tr key={at}>
                <Table.Td style={{ whiteSpace: "nowrap" }}>{bucketLabel(row.bucket_start, bucket)}</Table.Td>
                {by !== null && <Table.Td ta="left">{nameOf(row, by)}</Table.Td>}
                <Figures figures={row} />
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Panel>
  );
}

export const NAMES: Record<Group, string> = {
  tenant: "Tenant",
  key: "Key",
  adapter: "Adapter",
  version: "Version",
  model: "Base model",
};

interface HeadProps {
  first: string;
  second?: string | null;
  last?: string;
}

function Head({ first, second, last }: HeadProps) {
  return (
    <Table.Thead>
      <Table.Tr>
        <Table.Th>{first}</Table.Th>
        {typeof second === "string" && <Table.Th ta="left">{second}</Table.Th>}
        <Table.Th>Requests</Table.Th>
        <Table.Th>
          <Term help={HELP.errors}>Failed</Term>
        </Table.Th>
        <Table.Th>Prompt tokens</Table.Th>
        <Table.Th>
          <Term help={HELP.cached}>Cached</Term>
        </Table.Th>
        <Table.Th>Answer tokens</Table.Th>
        {last !== undefined && <Table.Th>{last}</Table.Th>}
      </Table.Tr>
    </Table.Thead>
  );
}

function Figures({ figures }: { figures: Totals }) {
  const cells = [figures.requests, figures.errors, figures.prompt_tokens, figures.cached_tokens, figures.completion_tokens];
  return cells.map((value, at) => <Table.Td key={at}>{grouped(value)}</Table.Td>);
}
