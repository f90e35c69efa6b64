import { Button, Checkbox, Group, Stack, Text, Textarea } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import { api } from "@/api/client";
import type { ApiKey } from "@/api/types";
import { Dialog } from "@/components/layout/dialog";
import { toastDone } from "@/components/feedback/toasts";

import { maskedKey } from "../standing";
import { useRefreshKeys } from "../use-keys";

interface StepProps {
  slug: string;
  apiKey: ApiKey;
  size?: "compact-sm" | "sm";
}

/** Ends a key for good, after a question. */
export function RevokeKey({ slug, apiKey, size = "compact-sm" }: StepProps) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <Button size={size} variant="default" onClick={open} aria-label={`Revoke ${apiKey.name} …${apiKey.hint}`}>
        Revoke
      </Button>
      <Dialog opened={opened} onClose={close} title={`Revoke ${apiKey.name}?`}>
        <Question slug={slug} apiKey={apiKey} onDone={close} />
      </Dialog>
    </>
  );
}

function Question({ slug, apiKey, onDone }: { slug: string; apiKey: ApiKey; onDone: () => void }) {
  const [reason, setReason] = useState("");
  const [withMade, setWithMade] = useState(false);
  const refresh = useRefreshKeys(slug);
  const revoke = api.useMutation("post", "/admin/v1/tenants/{slug}/keys/{id}/revoke");

  function confirm(): void {
    const said = reason.trim();
    revoke.mutate(
      { params: { path: { slug, id: apiKey.id } }, body: { with_made: withMade, ...(said !== "" && { reason: said }) } },
      {
        onSuccess: ({ made_keys: made }) => {
          refresh();
          const left = made.filter((key) => key.status === "active").map((key) => key.name);
          toastDone(`Key ${apiKey.name} revoked.${left.length > 0 ? ` It made keys that work on: ${left.join(", ")}.` : ""}`);
          onDone();
        },
      },
    );
  }

  return (
    <Stack gap="md">
      <Text fz="sm">
        Whatever uses <code>{maskedKey(apiKey)}</code> is refused within a second, and its running answers end. So does
        what still uses the key that it was rotated from. This can&apos;t be undone.
      </Text>
      <Textarea
        label="Reason"
        description="Shown with the key, and in the audit events."
        maxLength={500}
        rows={2}
        value={reason}
        onChange={(event) => {
          setReason(event.currentTarget.value);
        }}
        data-autofocus
      />
      <Checkbox
        label="Revoke the keys that were made with it, too"
        checked={withMade}
        onChange={(event) => {
          setWithMade(event.currentTarget.checked);
        }}
      />
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Keep it
        </Button>
        <Button color="red.9" loading={revoke.isPending} onClick={confirm}>
          Revoke
        </Button>
      </Group>
    </Stack>
  );
}
