import { Group, Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Engine } from "@/api/types";
import { Sparkline, type Sample } from "@/components/figures/sparkline";
import { StackedBar } from "@/components/figures/stacked-bar";
import { Term } from "@/components/term";
import { grouped, rate } from "@/format/numbers";

import { WINDOW_MS } from "./use-overview";

const HELP = {
  seats: "How many requests may run at once now. Fewer than configured after preemptions, more again when it is quiet.",
  swapped: "Preempted requests whose KV blocks lie in host memory; they are among the waiting.",
};

export function ActivityPanel({ engine, rates }: { engine: Engine; rates: readonly Sample[] }) {
  const peak = Math.max(0, ...rates.map(({ value }) => value));
  return (
    <div className="activity">
      <Paper withBorder p="md">
        <Group justify="space-between" align="flex-start" wrap="nowrap" gap="lg">
          <Figure label="Tokens per second" value={rate(engine.tokens_per_second)} testId="tokens-per-second" />
          <Stack gap={2} style={{ flex: 1, minWidth: 90 }}>
            <Sparkline samples={rates} windowMs={WINDOW_MS} label={`Tokens per second, last minute, peak ${rate(peak)}`} />
            <Group justify="space-between" fz="xs" c="dimmed">
              <span>last minute</span>
              <span>peak {rate(peak)}</span>
            </Group>
          </Stack>
        </Group>
      </Paper>
      <Paper withBorder p="md">
        <Requests engine={engine} />
      </Paper>
      <Paper withBorder p="md">
        <Stack gap={5} data-testid="totals">
          <Total label="Prompt tokens" value={engine.prompt_tokens_total} />
          <Total label="Generated tokens" value={engine.generated_tokens_total} />
          <Total label="Steps" value={engine.steps_total} />
        </Stack>
      </Paper>
    </div>
  );
}

function Requests({ engine }: { engine: Engine }) {
  return (
    <Stack gap={6}>
      <Group grow align="flex-start" gap="sm">
        <Figure label="Running" value={grouped(engine.running)} testId="running" />
        <Figure label="Waiting" value={grouped(engine.waiting)} testId="waiting" />
        <Figure
          label={<Term help={HELP.swapped}>Swapped</Term>}
          value={grouped(engine.swapped)}
          testId="swapped"
        />
      </Group>
      <StackedBar
        parts={[{ key: "running", value: engine.running, paint: "var(--lk-used)" }]}
        whole={Math.max(1, engine.seats, engine.running)}
        height={6}
      />
      <Text fz="xs" c="dimmed" component="div" data-testid="seats">
        {grouped(engine.running)} of {grouped(engine.seats)} <Term help={HELP.seats}>seats</Term> taken
        {engine.seats < engine.max_seats && `, ${grouped(engine.max_seats - engine.seats)} closed for want of memory`}
      </Text>
    </Stack>
  );
}

function Figure({ label, value, testId }: { label: ReactNode; value: ReactNode; testId: string }) {
  return (
    <div>
      <Text fz="sm" c="dimmed" component="div">
        {label}
      </Text>
      <Text fz={26} fw={650} lh={1.2} data-testid={testId}>
        {value}
      </Text>
    </div>
  );
}

function Total({ label, value }: { label: string; value: number }) {
  return (
    <Group justify="space-between" fz="sm" wrap="nowrap" gap="xs">
      <Text c="dimmed" fz="sm">
        {label}
      </Text>
      <span>{grouped(value)}</span>
    </Group>
  );
}
