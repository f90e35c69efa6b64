import { Badge, Button, Table, Text, VisuallyHidden } from "@mantine/core";
import { useState } from "react";

import type { EffectiveLimit, LimitFigures, Limits } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";

import { amount, exactAmount } from "./amounts";
import { inOrder, type Dimension, type Unit } from "./dimensions";
import { EditLimit, type LimitToEdit } from "./edit-limit";
import type { LimitChange } from "./use-limits";

const ORIGINS: Record<EffectiveLimit["origin"], string> = { plan: "gray", tenant: "blue", key: "orange" };
const HELP = {
  force: "The smallest of what the plan, the tenant and the key say; 0 blocks.",
  origin: "Whose limit it is.",
};

interface LimitsTableProps {
  limits: Limits;
  /** Whose own limits are set here. */
  subject: "tenant" | "key";
  onChange: (change: LimitChange) => Promise<void>;
}

/** Every dimension: what is in force and whose it is, what the subject has of its own, what the plan says. */
export function LimitsTable({ limits, subject, onChange }: LimitsTableProps) {
  const [edited, setEdited] = useState<LimitToEdit | null>(null);
  const own = subject === "tenant" ? "The tenant's own" : "The key's own";
  const dimensions = inOrder(Object.keys(limits)).filter(({ isOfKey }) => subject === "tenant" || isOfKey);
  return (
    <Panel title={subject === "key" ? "Limits" : undefined} flush testId="limits">
      <TableScroll label="Table of limits">
        <Table highlightOnHover fz="sm" miw={760} aria-label="Limits" layout="fixed">
          <Table.Thead>
            <Table.Tr>
              <Table.Th w="27%">Limit</Table.Th>
              <Table.Th ta="right">
                <Term help={HELP.force}>In force</Term>
              </Table.Th>
              <Table.Th w={90}>
                <Term help={HELP.origin}>From</Term>
              </Table.Th>
              <Table.Th ta="right">{own}</Table.Th>
              <Table.Th ta="right">The plan&apos;s</Table.Th>
              <Table.Th w={90}>
                <VisuallyHidden>Change</VisuallyHidden>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {dimensions.map((dimension) => (
              <LimitRow
                key={dimension.name}
                dimension={dimension}
                limit={limits[dimension.name]}
                onEdit={(limit) => {
                  setEdited({ dimension, whose: `the ${subject}'s`, own: limit.own, otherwise: limit.plan, canRemove: true });
                }}
              />
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
      <EditLimit
        edited={edited}
        onClose={() => {
          setEdited(null);
        }}
        onChange={onChange}
      />
    </Panel>
  );
}

interface LimitRowProps {
  dimension: Dimension;
  limit: EffectiveLimit | undefined;
  onEdit: (limit: EffectiveLimit) => void;
}

function LimitRow({ dimension, limit, onEdit }: LimitRowProps) {
  if (limit === undefined) return null;
  return (
    <Table.Tr data-testid={`limit-${dimension.name}`} data-origin={limit.origin}>
      <Table.Td>
        <Term help={dimension.help}>{dimension.label}</Term>
      </Table.Td>
      <Table.Td ta="right" fw={600} data-value={limit.value}>
        <FiguresCell figures={limit} unit={dimension.unit} hasBurst={dimension.hasBurst} />
      </Table.Td>
      <Table.Td>
        <Badge color={ORIGINS[limit.origin]}>{limit.origin}</Badge>
      </Table.Td>
      <Table.Td ta="right">
        <FiguresCell figures={limit.own} unit={dimension.unit} hasBurst={dimension.hasBurst} />
      </Table.Td>
      <Table.Td ta="right" c="dimmed">
        <FiguresCell figures={limit.plan} unit={dimension.unit} hasBurst={dimension.hasBurst} />
      </Table.Td>
      <Table.Td ta="right">
        <Button
          size="compact-sm"
          variant="default"
          aria-label={`${limit.own === null ? "Set" : "Edit"} ${dimension.label}`}
          onClick={() => {
            onEdit(limit);
          }}
        >
          {limit.own === null ? "Set" : "Edit"}
        </Button>
      </Table.Td>
    </Table.Tr>
  );
}

interface FiguresCellProps {
  figures: LimitFigures | null;
  unit: Unit;
  hasBurst: boolean;
}

/** The figure and, where bursts are counted, the burst below it; two lines in every row that has bursts. */
export function FiguresCell({ figures, unit, hasBurst }: FiguresCellProps) {
  if (figures === null) return <span>–</span>;
  return (
    <>
      <span title={exactAmount(figures.value, unit)} style={{ whiteSpace: "nowrap" }}>
        {figures.value === 0 ? "blocked" : amount(figures.value, unit)}
      </span>
      {hasBurst && typeof figures.burst === "number" && (
        <Text fz="xs" fw={400} c="dimmed" style={{ whiteSpace: "nowrap" }}>
          burst {amount(figures.burst, unit)}
        </Text>
      )}
    </>
  );
}
