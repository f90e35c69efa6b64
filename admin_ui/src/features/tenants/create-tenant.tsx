import { Button, Group, NumberInput, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { useLocation } from "wouter";

import { api } from "@/api/client";
import { Dialog } from "@/components/layout/dialog";
import { PlusIcon } from "@/components/icons";
import { toastDone } from "@/components/feedback/toasts";

import { slugProblem } from "./slug";
import { DEFAULT_WEIGHT, MAX_WEIGHT, weightProblem } from "./weight";
import { tenantsQuery } from "./use-tenants";

export function CreateTenant() {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <Button leftSection={<PlusIcon />} onClick={open}>
        Create tenant
      </Button>
      <Dialog opened={opened} onClose={close} title="Create tenant">
        <CreateTenantForm onDone={close} />
      </Dialog>
    </>
  );
}

function CreateTenantForm({ onDone }: { onDone: () => void }) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const create = api.useMutation("post", "/admin/v1/tenants");
  const form = useForm({
    initialValues: { slug: "", display_name: "", weight: DEFAULT_WEIGHT as number | string },
    validate: { slug: slugProblem, weight: weightProblem },
    validateInputOnBlur: true,
  });

  const submit = form.onSubmit(({ slug, display_name, weight: typed }) => {
    const name = display_name.trim();
    const weight = Number(typed);
    create.mutate(
      { body: name === "" ? { slug, weight } : { slug, display_name: name, weight } },
      {
        onSuccess: () => {
          void client.invalidateQueries({ queryKey: tenantsQuery.queryKey });
          toastDone(`Tenant ${slug} created. Give it a key next.`);
          onDone();
          navigate(`/tenants/${slug}/keys`);
        },
      },
    );
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        <TextInput
          label="Slug"
          description="Names the tenant in addresses, model lists and on the command line. It can't be changed."
          placeholder="acme-support"
          required
          data-autofocus
          autoComplete="off"
          spellCheck={false}
          {...form.getInputProps("slug")}
        />
        <TextInput
          label="Display name"
          placeholder="Acme Support"
          maxLength={100}
          autoComplete="off"
          {...form.getInputProps("display_name")}
        />
        <NumberInput
          label="Weight"
          description="Share of the engine under load: a tenant of weight 3 gets three times what a tenant of weight 1 gets."
          max={MAX_WEIGHT}
          clampBehavior="none"
          allowNegative={false}
          decimalScale={3}
          stepHoldDelay={500}
          stepHoldInterval={100}
          {...form.getInputProps("weight")}
        />
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onDone}>
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
