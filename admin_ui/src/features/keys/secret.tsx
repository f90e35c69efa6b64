import { Alert, Button, Group, Stack, Text, TextInput } from "@mantine/core";
import type { ReactNode } from "react";

import { CopyControl } from "@/components/copy-control";

interface SecretProps {
  secret: string;
  onDone: () => void;
  /** What else there is to know about the new key. */
  children?: ReactNode;
}

/** A new key's secret. It lives in the dialogue's state and goes when that closes; nothing else ever sees it. */
export function Secret({ secret, onDone, children }: SecretProps) {
  return (
    <Stack gap="md">
      <Alert color="yellow" variant="light" title="Copy the secret now">
        <Text fz="sm">It is shown this once and can&apos;t be shown again.</Text>
      </Alert>
      <TextInput
        label="Secret"
        value={secret}
        readOnly
        styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
        rightSection={<CopyControl value={secret} label="Copy secret" />}
        onFocus={(event) => {
          event.currentTarget.select();
        }}
        data-testid="key-secret"
      />
      {children}
      <Group justify="flex-end">
        <Button onClick={onDone}>I have copied it</Button>
      </Group>
    </Stack>
  );
}
