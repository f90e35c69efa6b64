import { Code, Group, Paper } from "@mantine/core";

import { CopyControl } from "./copy-control";

interface CommandProps {
  label?: string;
  children: string;
}

/** A command to run in a terminal, or a setting to put somewhere, with a copy control. */
export function Command({ label = "Copy command", children }: CommandProps) {
  return (
    <Paper withBorder px="sm" py={6} maw="100%" bg="var(--mantine-color-default-hover)">
      <Group gap="xs" wrap="nowrap" justify="space-between">
        <Code bg="transparent" fz="sm" p={0} style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
          {children}
        </Code>
        <CopyControl value={children} label={label} />
      </Group>
    </Paper>
  );
}
