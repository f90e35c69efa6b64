import { Button, Group, NumberInput, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import { api } from "@/api/client";
import type { ApiKey } from "@/api/types";
import { Dialog } from "@/components/layout/dialog";

import { Secret } from "../secret";
import { maskedKey } from "../standing";
import { useRefreshKeys } from "../use-keys";

const DEFAULT_OVERLAP_H = 24;
const MOST_OVERLAP_H = 168;

interface RotateProps {
  slug: string;
  apiKey: ApiKey;
  /** Whether it can be rotated. The dialogue outlives that: the secret is shown when the key is already replaced. */
  offered: boolean;
  size?: "compact-sm" | "sm";
}

/** Gives a key a successor with the same rights and limits; for some hours both work. */
export function RotateKey({ slug, apiKey, offered, size = "compact-sm" }: RotateProps) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      {offered && (
        <Button size={size} variant="default" onClick={open} aria-label={`Rotate ${apiKey.name} …${apiKey.hint}`}>
          Rotate
        </Button>
      )}
      <Dialog opened={opened} onClose={close} title={`Rotate ${apiKey.name}`} size="lg" closeOnClickOutside={false}>
        <Rotation slug={slug} apiKey={apiKey} onDone={close} />
      </Dialog>
    </>
  );
}

export function overlapProblem(typed: number | string): string | null {
  const hours = Number(typed);
  const fits = typed !== "" && Number.isInteger(hours) && hours >= 0 && hours <= MOST_OVERLAP_H;
  return fits ? null : `Whole hours, 0 to ${MOST_OVERLAP_H}.`;
}

function Rotation({ slug, apiKey, onDone }: { slug: string; apiKey: ApiKey; onDone: () => void }) {
  const [secret, setSecret] = useState<string | null>(null);
  const [hours, setHours] = useState<number | string>(DEFAULT_OVERLAP_H);
  const refresh = useRefreshKeys(slug);
  const rotate = api.useMutation("post", "/admin/v1/tenants/{slug}/keys/{id}/rotate", { gcTime: 0 });
  const problem = overlapProblem(hours);

  function confirm(): void {
    rotate.mutate(
      { params: { path: { slug, id: apiKey.id } }, body: { overlap_hours: Number(hours) } },
      {
        onSuccess: (key) => {
          refresh();
          setSecret(key.secret);
        },
      },
    );
  }

  if (secret !== null) {
    const rest = Number(hours) === 0 ? "no longer works" : `works for ${hours} h more`;
    return (
      <Secret secret={secret} onDone={onDone}>
        <Text fz="sm">
          The old key <code>{maskedKey(apiKey)}</code> {rest}.
        </Text>
      </Secret>
    );
  }
  return (
    <Stack gap="md">
      <Text fz="sm">
        Makes a new key with the same name, scopes and limits. The old one, <code>{maskedKey(apiKey)}</code>, goes on
        working while you replace it.
      </Text>
      <NumberInput
        label="Hours that both work"
        description={`0 to ${MOST_OVERLAP_H}. With 0 the old key stops at once.`}
        clampBehavior="none"
        allowNegative={false}
        allowDecimal={false}
        value={hours}
        error={problem}
        onChange={setHours}
        data-autofocus
      />
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button loading={rotate.isPending} disabled={problem !== null} onClick={confirm}>
          Rotate
        </Button>
      </Group>
    </Stack>
  );
}
