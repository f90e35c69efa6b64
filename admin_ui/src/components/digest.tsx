import { Group, Text, Tooltip } from "@mantine/core";

import { CopyControl } from "./copy-control";

/** A content digest: twelve characters tell it apart, the whole is one click away. */
export function Digest({ value }: { value: string }) {
  return (
    <Group gap={2} wrap="nowrap">
      <Tooltip label={value} maw={360} multiline style={{ wordBreak: "break-all" }}>
        <Text span ff="monospace" fz="xs">
          {value.slice(0, 12)}
        </Text>
      </Tooltip>
      <CopyControl value={value} label={`Copy digest ${value.slice(0, 12)}`} />
    </Group>
  );
}
