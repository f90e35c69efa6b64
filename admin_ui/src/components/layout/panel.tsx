import { Group, Paper, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

interface PanelProps {
  title?: string;
  note?: ReactNode;
  testId?: string;
  /** Tables reach the panel's edges; everything else gets its padding. */
  flush?: boolean;
  children: ReactNode;
}

export function Panel({ title, note, testId, flush = false, children }: PanelProps) {
  return (
    <Paper withBorder component="section" data-testid={testId} aria-label={title} style={{ overflow: "hidden" }}>
      {title !== undefined && (
        <Group justify="space-between" px="md" pt="sm" pb={flush ? "xs" : 0} gap="xs">
          <Title order={2} fz="md">
            {title}
          </Title>
          <Text c="dimmed" fz="sm" component="div">
            {note}
          </Text>
        </Group>
      )}
      <div style={flush ? undefined : { padding: "var(--mantine-spacing-sm) var(--mantine-spacing-md)" }}>
        {children}
      </div>
    </Paper>
  );
}
