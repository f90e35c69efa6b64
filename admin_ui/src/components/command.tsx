import { Code, Group, Paper } from "@mantine/core";

import { CopyControl } from "./copy-control";

/** A command to run in a terminal, with a copy control. */
export function Command({ children }: { children: string }) {
  return (
    <Paper withBorder px="sm" py={6} maw="100%" bg="var(--mantine-color-default-hover)">
      <Group gap="xs" wrap="nowrap" justify="space-between">
        <Code bg="transparent" fz="sm" p={0} style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
          {children}
        </Code>
        <CopyControl value={children} label="Copy command" />
      </Group>
    </Paper>
  );
}
