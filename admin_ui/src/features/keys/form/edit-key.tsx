import { Button, Stack } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";

import { api } from "@/api/client";
import type { ApiKey, KeyPatch } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Dialog } from "@/components/layout/dialog";
import { FormActions } from "@/components/layout/form-actions";

import { useRefreshKeys } from "../use-keys";
import { changesOf, draftOf, draftProblems } from "./draft";
import { KeyFields } from "./key-fields";

/** Changes what a key may do; the secret stays the same. */
export function EditKey({ slug, apiKey }: { slug: string; apiKey: ApiKey }) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <Button variant="default" onClick={open}>
        Edit
      </Button>
      <Dialog opened={opened} onClose={close} title={`Edit ${apiKey.name}`} size="lg" closeOnClickOutside={false}>
        <EditKeyForm slug={slug} apiKey={apiKey} onDone={close} />
      </Dialog>
    </>
  );
}

function EditKeyForm({ slug, apiKey, onDone }: { slug: string; apiKey: ApiKey; onDone: () => void }) {
  const refresh = useRefreshKeys(slug);
  const patch = api.useMutation("patch", "/admin/v1/tenants/{slug}/keys/{id}");
  const form = useForm({ initialValues: draftOf(apiKey), validate: draftProblems });
  const submit = form.onSubmit((draft) => {
    const body = changesOf(draft, apiKey);
    if (Object.keys(body).length === 0) {
      onDone();
      return;
    }
    patch.mutate(
      // The schema's types have all fields; the server leaves alone what is not said.
      { params: { path: { slug, id: apiKey.id } }, body: body as KeyPatch },
      {
        onSuccess: () => {
          refresh();
          toastDone("Saved.");
          onDone();
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        <KeyFields slug={slug} form={form} />
        <FormActions submit="Save" sending={patch.isPending} onCancel={onDone} />
      </Stack>
    </form>
  );
}
