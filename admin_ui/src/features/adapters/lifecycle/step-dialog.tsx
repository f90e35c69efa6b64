import { Button, Group, Stack, Switch, Text, Textarea } from "@mantine/core";
import { useState } from "react";

import type { Version } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Dialog } from "@/components/layout/dialog";

import { wordsOf, type Step } from "./steps";
import { useStep } from "./use-step";

interface StepDialogProps {
  slug: string;
  version: Version;
  /** The aliases that point at it. */
  aliases: readonly string[];
  step: Step | null;
  onClose: () => void;
}

/** Says what a step does, asks for the reason where there is one to keep, and takes it. */
export function StepDialog({ step, onClose, version, ...rest }: StepDialogProps) {
  const title = step === null ? "" : wordsOf(step.kind, version, rest.aliases).title;
  return (
    <Dialog opened={step !== null} onClose={onClose} title={title}>
      {step && <Question {...rest} version={version} step={step} onClose={onClose} />}
    </Dialog>
  );
}

function Question({ slug, version, aliases, step, onClose }: StepDialogProps & { step: Step }) {
  const words = wordsOf(step.kind, version, aliases);
  const [reason, setReason] = useState("");
  const [force, setForce] = useState(false);
  const take = useStep(slug, version);

  function confirm(): void {
    take.mutate(
      { kind: step.kind, reason: reason.trim(), force },
      {
        onSuccess: () => {
          toastDone(words.done);
          onClose();
        },
      },
    );
  }

  return (
    <Stack gap="md">
      <Text fz="sm">{words.sentence}</Text>
      {words.takesReason && (
        <Textarea
          label="Reason"
          description="Shown on the version's page."
          maxLength={500}
          rows={3}
          value={reason}
          onChange={(event) => {
            setReason(event.currentTarget.value);
          }}
          data-autofocus
        />
      )}
      {words.takesForce && (
        <Switch
          label="End what runs on it within seconds"
          checked={force}
          onChange={(event) => {
            setForce(event.currentTarget.checked);
          }}
        />
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button color={words.danger ? "red.9" : undefined} loading={take.isPending} onClick={confirm}>
          {step.label}
        </Button>
      </Group>
    </Stack>
  );
}
