import { Button, Group, Stack, Text, TextInput, Tooltip } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";

import { api } from "@/api/client";
import type { Adapter } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Dialog } from "@/components/layout/dialog";

import { adaptersAddress } from "../addresses";

/** Removes an adapter with everything it has, after its name was typed. */
export function DeleteAdapter({ slug, adapter }: { slug: string; adapter: Adapter }) {
  const [opened, { open, close }] = useDisclosure(false);
  const validating = adapter.versions.some(({ state }) => state === "validating");
  return (
    <>
      <Tooltip label="A version is being validated. Wait for its verdict." disabled={!validating}>
        <Button variant="default" data-disabled={validating || undefined} aria-disabled={validating} onClick={validating ? undefined : open}>
          Delete adapter
        </Button>
      </Tooltip>
      <Dialog opened={opened} onClose={close} title={`Delete ${adapter.name}?`}>
        <Confirm slug={slug} adapter={adapter} onDone={close} />
      </Dialog>
    </>
  );
}

function Confirm({ slug, adapter, onDone }: { slug: string; adapter: Adapter; onDone: () => void }) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [typed, setTyped] = useState("");
  const remove = api.useMutation("delete", "/admin/v1/tenants/{slug}/adapters/{name}");

  function confirm(): void {
    remove.mutate(
      { params: { path: { slug, name: adapter.name } } },
      {
        onSuccess: () => {
          onDone();
          navigate(adaptersAddress(slug));
          toastDone(`Adapter ${adapter.name} deleted.`);
          void client.invalidateQueries({ queryKey: ["get", "/admin/v1/tenants/{slug}/adapters"] });
          void client.invalidateQueries({ queryKey: api.queryOptions("get", "/admin/v1/tenants").queryKey });
        },
      },
    );
  }

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (typed === adapter.name) confirm();
      }}
    >
      <Stack gap="md">
        <Text fz="sm">
          Its aliases and all its versions go, and requests for it are refused from then on. This can&apos;t be undone.
        </Text>
        <TextInput
          label={`Type ${adapter.name} to confirm`}
          autoComplete="off"
          spellCheck={false}
          data-autofocus
          value={typed}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
          }}
        />
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
            Keep it
          </Button>
          <Button type="submit" color="red.9" disabled={typed !== adapter.name} loading={remove.isPending}>
            Delete
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
