import { Button, Stack } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import { api } from "@/api/client";
import { Dialog } from "@/components/layout/dialog";
import { FormActions } from "@/components/layout/form-actions";
import { PlusIcon } from "@/components/icons";

import { Secret } from "../secret";
import { useRefreshKeys } from "../use-keys";
import { draftProblems, emptyDraft, newKeyOf } from "./draft";
import { KeyFields } from "./key-fields";

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

function NewKey({ slug, onDone }: { slug: string; onDone: () => void }) {
  const [secret, setSecret] = useState<string | null>(null);
  return secret === null ? (
    <NewKeyForm slug={slug} onCreated={setSecret} onCancel={onDone} />
  ) : (
    <Secret secret={secret} onDone={onDone} />
  );
}

interface NewKeyFormProps {
  slug: string;
  onCreated: (secret: string) => void;
  onCancel: () => void;
}

function NewKeyForm({ slug, onCreated, onCancel }: NewKeyFormProps) {
  const refresh = useRefreshKeys(slug);
  const create = api.useMutation("post", "/admin/v1/tenants/{slug}/keys", { gcTime: 0 });
  const form = useForm({ initialValues: emptyDraft(), validate: draftProblems });
  const submit = form.onSubmit((draft) => {
    create.mutate(
      { params: { path: { slug } }, body: newKeyOf(draft) },
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
        <KeyFields slug={slug} form={form} />
        <FormActions submit="Create" sending={create.isPending} onCancel={onCancel} />
      </Stack>
    </form>
  );
}
