import { Button, Group, NumberInput, Select, SimpleGrid, Stack, Switch, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "@/api/client";
import type { TenantDetail } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Panel } from "@/components/layout/panel";
import { planChoices, usePlans } from "@/features/plans/use-plans";

import { useRefreshTenant } from "../use-tenants";
import { MAX_WEIGHT, weightProblem } from "../weight";

/** What an administrator may change of a tenant; nothing is sent until it is saved. */
export function SettingsPanel({ tenant }: { tenant: TenantDetail }) {
  const plans = usePlans();
  const refresh = useRefreshTenant(tenant.slug);
  const save = api.useMutation("patch", "/admin/v1/tenants/{slug}");
  const form = useForm({
    initialValues: {
      display_name: tenant.display_name,
      weight: tenant.weight as number | string,
      plan: tenant.plan,
      keys_make_keys: tenant.keys_make_keys,
    },
    validate: {
      display_name: (name) => (name.trim() === "" ? "Give the tenant a name." : null),
      weight: weightProblem,
    },
    validateInputOnBlur: true,
  });

  const submit = form.onSubmit((typed) => {
    const body = { ...typed, display_name: typed.display_name.trim(), weight: Number(typed.weight) };
    save.mutate(
      { params: { path: { slug: tenant.slug } }, body },
      {
        onSuccess: () => {
          form.setValues(body);
          form.resetDirty(body);
          toastDone("Saved.");
          void refresh();
        },
      },
    );
  });

  return (
    <Panel title="Settings" testId="tenant-settings">
      <form onSubmit={submit} noValidate>
        <Stack gap="md">
          <SimpleGrid cols={{ base: 1, sm: 3 }} spacing="md">
            <TextInput label="Display name" maxLength={200} autoComplete="off" {...form.getInputProps("display_name")} />
            <NumberInput
              label="Weight"
              max={MAX_WEIGHT}
              clampBehavior="none"
              allowNegative={false}
              decimalScale={3}
              {...form.getInputProps("weight")}
            />
            <Select
              label="Plan"
              data={planChoices(plans.data?.data, tenant.plan)}
              allowDeselect={false}
              {...form.getInputProps("plan")}
            />
          </SimpleGrid>
          <Group justify="space-between" gap="md">
            <Switch
              label="The tenant's keys may make keys"
              description="Lets a key hold the scope keys:write; otherwise only administrators make keys."
              {...form.getInputProps("keys_make_keys", { type: "checkbox" })}
            />
            <Button type="submit" disabled={!form.isDirty()} loading={save.isPending}>
              Save
            </Button>
          </Group>
        </Stack>
      </form>
    </Panel>
  );
}
