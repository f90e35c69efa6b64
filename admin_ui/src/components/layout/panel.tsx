import { Group, Paper, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

import { Term } from "@/components/term";

interface PanelProps {
  title?: string | undefined;
  /** What the title means, on hover and focus. */
  help?: string;
  note?: ReactNode;
  testId?: string;
  /** Tables reach the panel's edges; everything else gets its padding. */
  flush?: boolean;
  children: ReactNode;
}

export function Panel({ title, help, note, testId, flush = false, children }: PanelProps) {
  return (
    <Paper withBorder component="section" data-testid={testId} aria-label={title} style={{ overflow: "hidden" }}>
      {title !== undefined && (
        <Group justify="space-between" px="md" pt="sm" pb={flush ? "xs" : 0} gap="xs">
          <Title order={2} fz="md">
            {help === undefined ? title : <Term help={help}>{title}</Term>}
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
