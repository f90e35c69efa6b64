import { Alert, Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import { api } from "@/api/client";
import { CopyControl } from "@/components/copy-control";
import { Dialog } from "@/components/layout/dialog";
import { PlusIcon } from "@/components/icons";

import { useRefreshKeys } from "./use-keys";

export function CreateKey({ slug }: { slug: string }) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <Button leftSection={<PlusIcon />} onClick={open}>
        Create key
      </Button>
      <Dialog opened={opened} onClose={close} title="Create key" size="lg" closeOnClickOutside={false}>
        <NewKey slug={slug} onDone={close} />
      </Dialog>
    </>
  );
}

/** The secret lives in this dialogue's state and goes when it closes; nothing else ever sees it. */
function NewKey({ slug, onDone }: { slug: string; onDone: () => void }) {
  const [secret, setSecret] = useState<string | null>(null);
  return secret === null ? (
    <NameForm slug={slug} onCreated={setSecret} onCancel={onDone} />
  ) : (
    <Secret secret={secret} onDone={onDone} />
  );
}

interface NameFormProps {
  slug: string;
  onCreated: (secret: string) => void;
  onCancel: () => void;
}

function NameForm({ slug, onCreated, onCancel }: NameFormProps) {
  const refresh = useRefreshKeys(slug);
  const create = api.useMutation("post", "/admin/v1/tenants/{slug}/keys", { gcTime: 0 });
  const form = useForm({
    initialValues: { name: "" },
    validate: { name: (name) => (name.trim() === "" ? "Give the key a name." : null) },
  });
  const submit = form.onSubmit(({ name }) => {
    create.mutate(
      { params: { path: { slug } }, body: { name: name.trim() } },
      {
        onSuccess: (key) => {
          refresh();
          onCreated(key.secret);
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        <TextInput
          label="Name"
          description="Says what uses the key, so that you know what stops when you revoke it."
          placeholder="support-bot production"
          required
          maxLength={100}
          data-autofocus
          autoComplete="off"
          {...form.getInputProps("name")}
        />
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onCancel}>
            Cancel
          </Button>
          <Button type="submit" loading={create.isPending}>
            Create
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

function Secret({ secret, onDone }: { secret: string; onDone: () => void }) {
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
      <Group justify="flex-end">
        <Button onClick={onDone}>I have copied it</Button>
      </Group>
    </Stack>
  );
}
