import { Alert, List } from "@mantine/core";

import type { Alias } from "@/api/types";

import { differences } from "./shares";

/** Somebody was faster: says what they did, so that the reader decides again on what holds now. */
export function ConflictNotice({ before, now }: { before: Alias | null; now: Alias | null }) {
  const who = now === null ? "Somebody" : now.updated_by;
  return (
    <Alert color="yellow" variant="light" title={`${who} changed it in the meantime`} role="alert" data-testid="conflict">
      <List fz="sm" spacing={2}>
        {differences(before, now).map((sentence) => (
          <List.Item key={sentence}>{sentence}</List.Item>
        ))}
      </List>
    </Alert>
  );
}
