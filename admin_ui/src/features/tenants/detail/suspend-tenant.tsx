import { Button, Group, Stack, Text, Textarea } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";

import { api } from "@/api/client";
import type { TenantDetail } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Dialog } from "@/components/layout/dialog";

import { useRefreshTenant } from "../use-tenants";

/** Stops a tenant, or lets it go on, after a question. */
export function SuspendTenant({ tenant }: { tenant: TenantDetail }) {
  const [opened, { open, close }] = useDisclosure(false);
  const verb = tenant.status === "active" ? "Suspend" : "Resume";
  return (
    <>
      <Button variant="default" onClick={open}>
        {verb} tenant
      </Button>
      <Dialog opened={opened} onClose={close} title={`${verb} ${tenant.slug}?`}>
        {tenant.status === "active" ? (
          <SuspendQuestion slug={tenant.slug} onDone={close} />
        ) : (
          <ResumeQuestion slug={tenant.slug} onDone={close} />
        )}
      </Dialog>
    </>
  );
}

interface QuestionProps {
  slug: string;
  onDone: () => void;
}

function SuspendQuestion({ slug, onDone }: QuestionProps) {
  const [reason, setReason] = useState("");
  const refresh = useRefreshTenant(slug);
  const suspend = api.useMutation("post", "/admin/v1/tenants/{slug}/suspend");

  function confirm(): void {
    const said = reason.trim();
    suspend.mutate(
      { params: { path: { slug } }, body: said === "" ? {} : { reason: said } },
      {
        onSuccess: () => {
          onDone();
          toastDone(`${slug} is suspended.`);
          void refresh();
        },
      },
    );
  }

  return (
    <Stack gap="md">
      <Text fz="sm">
        Its running answers end, and every one of its keys is refused until you resume it. Adapters, keys, limits and
        usage stay.
      </Text>
      <Textarea
        label="Reason"
        description="Kept in the audit events."
        maxLength={500}
        rows={2}
        value={reason}
        onChange={(event) => {
          setReason(event.currentTarget.value);
        }}
        data-autofocus
      />
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button color="red.9" loading={suspend.isPending} onClick={confirm}>
          Suspend
        </Button>
      </Group>
    </Stack>
  );
}

function ResumeQuestion({ slug, onDone }: QuestionProps) {
  const refresh = useRefreshTenant(slug);
  const resume = api.useMutation("post", "/admin/v1/tenants/{slug}/resume");

  function confirm(): void {
    resume.mutate(
      { params: { path: { slug } } },
      {
        onSuccess: () => {
          onDone();
          toastDone(`${slug} is active again.`);
          void refresh();
        },
      },
    );
  }

  return (
    <Stack gap="md">
      <Text fz="sm">Its keys work again at once.</Text>
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button loading={resume.isPending} onClick={confirm} data-autofocus>
          Resume
        </Button>
      </Group>
    </Stack>
  );
}
