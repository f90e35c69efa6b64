import { Button, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { useLocation } from "wouter";

import { api } from "@/api/client";
import { Dialog } from "@/components/layout/dialog";
import { FormActions } from "@/components/layout/form-actions";
import { PlusIcon } from "@/components/icons";
import { toastDone } from "@/components/feedback/toasts";

import { planNameProblem, useRefreshPlans } from "./use-plans";

export function CreatePlan() {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <Button leftSection={<PlusIcon />} onClick={open}>
        Create plan
      </Button>
      <Dialog opened={opened} onClose={close} title="Create plan">
        <CreatePlanForm onDone={close} />
      </Dialog>
    </>
  );
}

function CreatePlanForm({ onDone }: { onDone: () => void }) {
  const refresh = useRefreshPlans();
  const [, navigate] = useLocation();
  const create = api.useMutation("post", "/admin/v1/plans");
  const form = useForm({ initialValues: { id: "" }, validate: { id: planNameProblem }, validateInputOnBlur: true });
  const submit = form.onSubmit(({ id }) => {
    create.mutate(
      { body: { id, limits: {} } },
      {
        onSuccess: () => {
          void refresh();
          toastDone(`Plan ${id} created. Set its limits next.`);
          onDone();
          navigate(`/plans/${id}`);
        },
      },
    );
  });
  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        <TextInput
          label="Name"
          description="Can't be changed."
          placeholder="small"
          required
          data-autofocus
          autoComplete="off"
          spellCheck={false}
          {...form.getInputProps("id")}
        />
        <Text fz="sm">It starts with the limits of the plan standard.</Text>
        <FormActions submit="Create" sending={create.isPending} onCancel={onDone} />
      </Stack>
    </form>
  );
}
