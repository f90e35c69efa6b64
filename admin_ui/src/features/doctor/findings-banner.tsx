import { Accordion, Badge, Group, Paper, Stack, Text, Title, VisuallyHidden } from "@mantine/core";
import { useState } from "react";

import type { Finding, Findings } from "@/api/types";
import { Command } from "@/components/command";
import { Prose } from "@/components/prose";
import { Term } from "@/components/term";
import { counted } from "@/format/numbers";
import { dateTime, span } from "@/format/time";

import { inOrder } from "./use-findings";

const HELP =
  "Rules of experience, held against the engine's own figures: each says what it saw, what that costs, and the setting " +
  "that would change it. lorikeet doctor prints the same.";

/** So many lie open when the page is opened; more are a list to choose from. */
const MOST_OPEN = 2;

const SEVERITY = {
  warning: { color: "yellow", edge: "var(--mantine-color-yellow-6)" },
  critical: { color: "red", edge: "var(--mantine-color-red-7)" },
} as const;

/**
 * What the doctor finds; nothing at all while it finds nothing or has seen too little. What turns up later comes closed, so
 * that the page under the reader moves by a line only.
 */
export function FindingsBanner({ report }: { report: Findings }) {
  const findings = inOrder(report.findings);
  const [open, setOpen] = useState(() => (findings.length > MOST_OPEN ? [] : findings.map(({ rule }) => rule)));
  const [worst] = findings;
  return (
    <>
      <VisuallyHidden role="status">{findings.length > 0 && spoken(findings)}</VisuallyHidden>
      {worst && (
        <Paper
          withBorder
          component="section"
          aria-label="Findings"
          data-testid="findings"
          style={{ borderInlineStart: `4px solid ${SEVERITY[worst.severity].edge}`, overflow: "hidden" }}
        >
          <Group justify="space-between" px="md" pt="sm" pb={4} gap="xs">
            <Title order={2} fz="md">
              <Term help={HELP}>{counted(findings.length, "finding")}</Term>
            </Title>
            <Examined report={report} />
          </Group>
          <Accordion multiple value={open} onChange={setOpen} order={3} transitionDuration={0}>
            {findings.map((finding) => (
              <FindingItem key={finding.rule} finding={finding} />
            ))}
          </Accordion>
        </Paper>
      )}
    </>
  );
}

function spoken(findings: readonly Finding[]): string {
  return `The doctor has ${counted(findings.length, "finding")}: ${findings.map(({ title }) => title).join("; ")}`;
}

function Examined({ report: { examined_s, at } }: { report: Findings }) {
  if (examined_s === null) return null;
  return (
    <Text fz="sm" c="dimmed" title={at === null ? undefined : dateTime(at)}>
      in the last {span(examined_s)}
    </Text>
  );
}

function FindingItem({ finding }: { finding: Finding }) {
  const { rule, severity, title, explanation, cost, remedy, setting } = finding;
  return (
    <Accordion.Item value={rule} data-testid={`finding-${rule}`} data-severity={severity}>
      <Accordion.Control>
        <span className="finding">
          <Badge component="span" color={SEVERITY[severity].color}>
            {severity}
          </Badge>
          <Text span fw={600} fz="sm">
            {title}
          </Text>
          <Text span fz="sm" c="dimmed" data-testid="cost">
            {cost.text}
          </Text>
        </span>
      </Accordion.Control>
      <Accordion.Panel>
        <Stack gap="sm">
          <Text fz="sm">
            <Prose>{explanation}</Prose>
          </Text>
          <Evidence finding={finding} />
          <div>
            <Text fz="sm">
              <Text span fz="sm" fw={600}>
                What to do:{" "}
              </Text>
              <Prose>{remedy}</Prose>
            </Text>
            {setting !== null && (
              <Group mt={6}>
                <Command label={`Copy ${setting}`}>{setting}</Command>
              </Group>
            )}
          </div>
        </Stack>
      </Accordion.Panel>
    </Accordion.Item>
  );
}

function Evidence({ finding: { evidence, title } }: { finding: Finding }) {
  if (evidence.length === 0) return null;
  return (
    <dl className="evidence" aria-label={`Evidence for: ${title}`}>
      {evidence.map(({ label, value }) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
