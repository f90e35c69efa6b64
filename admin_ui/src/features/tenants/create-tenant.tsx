import { Button, NumberInput, Select, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { useLocation } from "wouter";

import { api } from "@/api/client";
import { Dialog } from "@/components/layout/dialog";
import { FormActions } from "@/components/layout/form-actions";
import { PlusIcon } from "@/components/icons";
import { toastDone } from "@/components/feedback/toasts";
import { planChoices, STANDARD_PLAN, usePlans } from "@/features/plans/use-plans";

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
  const plans = usePlans();
  const [, navigate] = useLocation();
  const create = api.useMutation("post", "/admin/v1/tenants");
  const form = useForm({
    initialValues: { slug: "", display_name: "", weight: DEFAULT_WEIGHT as number | string, plan: STANDARD_PLAN },
    validate: { slug: slugProblem, weight: weightProblem },
    validateInputOnBlur: true,
  });

  const submit = form.onSubmit(({ slug, display_name, weight: typed, plan }) => {
    const name = display_name.trim();
    const body = { slug, weight: Number(typed), plan, keys_make_keys: false };
    create.mutate(
      { body: name === "" ? body : { ...body, display_name: name } },
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
          maxLength={200}
          autoComplete="off"
          {...form.getInputProps("display_name")}
        />
        <Select
          label="Plan"
          description="What it may do at most. Limits of its own come after."
          data={planChoices(plans.data?.data, STANDARD_PLAN)}
          allowDeselect={false}
          {...form.getInputProps("plan")}
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
        <FormActions submit="Create" sending={create.isPending} onCancel={onDone} />
      </Stack>
    </form>
  );
}
