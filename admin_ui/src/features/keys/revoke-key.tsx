import { Button, Group, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";

import { api } from "@/api/client";
import type { ApiKey } from "@/api/types";
import { Dialog } from "@/components/layout/dialog";
import { toastDone } from "@/components/feedback/toasts";

import { maskedKey } from "./key-shape";
import { useRefreshKeys } from "./use-keys";

export function RevokeKey({ slug, apiKey }: { slug: string; apiKey: ApiKey }) {
  const [opened, { open, close }] = useDisclosure(false);
  const refresh = useRefreshKeys(slug);
  const revoke = api.useMutation("post", "/admin/v1/keys/{key_id}/revoke");

  function confirm(): void {
    revoke.mutate(
      { params: { path: { key_id: apiKey.id } } },
      {
        onSuccess: () => {
          refresh();
          toastDone(`Key ${apiKey.name} revoked.`);
          close();
        },
      },
    );
  }

  return (
    <>
      <Button size="compact-sm" variant="default" onClick={open} aria-label={`Revoke ${apiKey.name}`}>
        Revoke
      </Button>
      <Dialog opened={opened} onClose={close} title={`Revoke ${apiKey.name}?`}>
        <Stack gap="md">
          <Text fz="sm">
            Whatever uses <code>{maskedKey(apiKey)}</code> is refused from then on. This can&apos;t be undone.
          </Text>
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close} data-autofocus>
              Keep it
            </Button>
            <Button color="red.9" loading={revoke.isPending} onClick={confirm}>
              Revoke
            </Button>
          </Group>
        </Stack>
      </Dialog>
    </>
  );
}
