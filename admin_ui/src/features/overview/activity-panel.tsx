import { Group, Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Engine } from "@/api/types";
import { Sparkline, type Sample } from "@/components/sparkline";
import { grouped, rate } from "@/format/numbers";

import { WINDOW_MS } from "./use-overview";

export function ActivityPanel({ engine, rates }: { engine: Engine; rates: Sample[] }) {
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
        <Group grow align="flex-start">
          <Figure label="Running" value={grouped(engine.running)} testId="running" />
          <Figure label="Waiting" value={grouped(engine.waiting)} testId="waiting" />
        </Group>
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

function Figure({ label, value, testId }: { label: string; value: ReactNode; testId: string }) {
  return (
    <div>
      <Text fz="sm" c="dimmed">
        {label}
      </Text>
      <Text fz={30} fw={650} lh={1.2} data-testid={testId}>
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
