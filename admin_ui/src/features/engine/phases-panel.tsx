import { Stack, Table } from "@mantine/core";

import type { Performance, Phase } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { grouped, percent } from "@/format/numbers";
import { scaled, significant } from "@/format/quantities";
import { seconds, span } from "@/format/time";
import { phaseOf, PHASES, UTILISATION, type Kind } from "@/features/performance/kinds";
import { KindName } from "@/features/performance/phases-panel";
import { StepMix } from "@/features/performance/step-mix";

const HELP = {
  panel: "Each kind of step by itself. MFU divided by MBU equals intensity divided by the ridge, in every row.",
  tokens: "Tokens computed in such steps: of prompts, and new ones.",
  flops: "Arithmetic that the model needed, a second of such steps.",
  reads: "Weights, keys and values, and adapters read, a second of such steps.",
  intensity: "FLOPs for each byte read. Below the ridge memory is what a step waits for, above it arithmetic.",
};

/** Every kind of step with all its figures. */
export function EnginePhases({ performance }: { performance: Performance }) {
  return (
    <Panel title="Steps by kind" help={HELP.panel} note={`last ${span(performance.window_s)}`} testId="phases" flush>
      <Stack gap={0}>
        <div style={{ padding: "0 var(--mantine-spacing-md) var(--mantine-spacing-xs)" }}>
          <StepMix performance={performance} />
        </div>
        <TableScroll label="Table of steps by kind">
          <Table fz="sm" miw={780} aria-label="Steps by kind" className="figure-columns">
            <Head />
            <Table.Tbody>
              {PHASES.map((kind) => (
                <Row key={kind.key} kind={kind} phase={phaseOf(performance, kind.key)} />
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      </Stack>
    </Panel>
  );
}

function Head() {
  return (
    <Table.Thead>
      <Table.Tr>
        <Table.Th>Kind</Table.Th>
        <Table.Th>Steps</Table.Th>
        <Table.Th>Seconds</Table.Th>
        <Table.Th>Time</Table.Th>
        <Table.Th>
          <Term help={HELP.tokens}>Tokens</Term>
        </Table.Th>
        <Table.Th>
          <Term help={HELP.flops}>Arithmetic</Term>
        </Table.Th>
        <Table.Th>
          <Term help={UTILISATION.mfu}>MFU</Term>
        </Table.Th>
        <Table.Th>
          <Term help={HELP.reads}>Reads</Term>
        </Table.Th>
        <Table.Th>
          <Term help={UTILISATION.mbu}>MBU</Term>
        </Table.Th>
        <Table.Th>
          <Term help={HELP.intensity}>Intensity</Term>
        </Table.Th>
      </Table.Tr>
    </Table.Thead>
  );
}

function Row({ kind, phase }: { kind: Kind; phase: Phase | undefined }) {
  return (
    <Table.Tr data-phase={kind.key}>
      <Table.Td>
        <KindName kind={kind} />
      </Table.Td>
      {cells(kind, phase).map((cell, at) => (
        <Table.Td key={at}>{cell}</Table.Td>
      ))}
    </Table.Tr>
  );
}

const NONE = "–";

function cells(kind: Kind, phase: Phase | undefined): string[] {
  if (phase === undefined || phase.steps === 0) return ["0", ...Array.from({ length: 8 }, () => NONE)];
  const time = [grouped(phase.steps), seconds(phase.seconds), percent(phase.share, 1)];
  if (kind.key === "copy") return [...time, ...Array.from({ length: 6 }, () => NONE)];
  return [
    ...time,
    grouped(phase.tokens),
    scaled(phase.flops_per_s, "FLOP/s"),
    percent(phase.mfu, 1),
    scaled(phase.read_bytes_per_s, "B/s"),
    percent(phase.mbu, 1),
    significant(phase.intensity),
  ];
}
