import { Text } from "@mantine/core";

import { Term } from "@/components/term";

interface FigureProps {
  term: string;
  help: string;
  value: string;
  note: string;
  testId: string;
}

/** One figure with its name above it and what it is to be read by below. */
export function Figure({ term, help, value, note, testId }: FigureProps) {
  return (
    <div data-testid={testId}>
      <Text fz="sm" c="dimmed" component="div">
        <Term help={help}>{term}</Term>
      </Text>
      <Text fz={22} fw={650} lh={1.3}>
        {value}
      </Text>
      <Text fz="xs" c="dimmed">
        {note}
      </Text>
    </div>
  );
}
