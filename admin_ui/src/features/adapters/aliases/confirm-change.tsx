import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import type { Alias } from "@/api/types";
import { Dialog } from "@/components/layout/dialog";

import { ConflictNotice } from "./conflict-notice";
import { useAliasChange, type AliasChange } from "./use-alias-change";

/** One step that is decided already: what it does in a sentence, and the change it makes. */
export interface Confirmation {
  title: string;
  verb: string;
  sentence: string;
  /** Removing takes no reason. */
  takesReason?: boolean;
  danger?: boolean;
  change: (reason: string) => AliasChange;
}

interface ConfirmChangeProps {
  slug: string;
  name: string;
  alias: Alias;
  confirmation: Confirmation | null;
  onClose: () => void;
}

export function ConfirmChange({ confirmation, onClose, ...place }: ConfirmChangeProps) {
  return (
    <Dialog opened={confirmation !== null} onClose={onClose} title={confirmation?.title ?? ""}>
      {confirmation && <Question {...place} confirmation={confirmation} onClose={onClose} />}
    </Dialog>
  );
}

type QuestionProps = Omit<ConfirmChangeProps, "confirmation"> & { confirmation: Confirmation };

/** The alias as it was when the question was asked; after a conflict, as it is now, so that the next press means that. */
function Question({ slug, name, alias, confirmation, onClose }: QuestionProps) {
  const [seen, setSeen] = useState<Alias | null>(alias);
  const [conflict, setConflict] = useState<{ before: Alias | null; now: Alias | null } | null>(null);
  const [reason, setReason] = useState("");
  const change = useAliasChange({ slug, name });

  function confirm(): void {
    const order = { alias: alias.alias, revision: seen?.revision ?? 0, change: confirmation.change(reason.trim()) };
    change.mutate(order, {
      onSuccess: (outcome) => {
        if (!outcome.conflict) onClose();
        else {
          setConflict({ before: seen, now: outcome.now });
          setSeen(outcome.now);
        }
      },
    });
  }

  return (
    <Stack gap="md">
      {conflict && <ConflictNotice {...conflict} />}
      <Text fz="sm">{confirmation.sentence}</Text>
      {confirmation.takesReason !== false && (
        <TextInput
          label="Reason"
          description="Kept in the alias's history."
          maxLength={500}
          autoComplete="off"
          value={reason}
          onChange={(event) => {
            setReason(event.currentTarget.value);
          }}
        />
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button color={confirmation.danger ? "red.9" : undefined} loading={change.isPending} onClick={confirm}>
          {conflict ? `${confirmation.verb} all the same` : confirmation.verb}
        </Button>
      </Group>
    </Stack>
  );
}
