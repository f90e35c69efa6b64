import { Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

/** Nothing here yet: says so, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Stack align="center" gap="xs" py="xl" px="md" ta="center">
      <Text fw={600}>{title}</Text>
      {children}
    </Stack>
  );
}
