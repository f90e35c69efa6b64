import { Alert, Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useState } from "react";

import type { LimitFigures } from "@/api/types";
import { toastDone } from "@/components/feedback/toasts";
import { Dialog } from "@/components/layout/dialog";

import { amount, amountProblem, exactAmount, readAmount, writtenAmount } from "./amounts";
import type { Dimension } from "./dimensions";
import type { LimitChange } from "./use-limits";

export interface LimitToEdit {
  dimension: Dimension;
  /** Whose own figures are edited, as in "the tenant's own". */
  whose: string;
  own: LimitFigures | null;
  /** What the fields start from when there is nothing of its own, and what holds without it. */
  otherwise: LimitFigures;
  /** A plan has a figure for everything, so nothing of it is taken away. */
  canRemove: boolean;
}

interface EditLimitProps {
  edited: LimitToEdit | null;
  onClose: () => void;
  onChange: (change: LimitChange) => Promise<void>;
}

export function EditLimit({ edited, onClose, onChange }: EditLimitProps) {
  return (
    <Dialog opened={edited !== null} onClose={onClose} title={edited?.dimension.label ?? ""}>
      {edited && <LimitForm edited={edited} onClose={onClose} onChange={onChange} />}
    </Dialog>
  );
}

function LimitForm({ edited, onClose, onChange }: EditLimitProps & { edited: LimitToEdit }) {
  const { dimension, whose, own, otherwise, canRemove } = edited;
  const { unit, hasBurst } = dimension;
  const start = own ?? otherwise;
  const [sending, setSending] = useState<"set" | "remove" | null>(null);
  const form = useForm({
    initialValues: {
      value: writtenAmount(start.value, unit),
      burst: typeof start.burst === "number" ? writtenAmount(start.burst, unit) : "",
    },
    validate: {
      value: (typed) => amountProblem(typed, unit),
      burst: (typed) => (typed.trim() === "" ? null : amountProblem(typed, unit)),
    },
  });
  const value = readAmount(form.values.value, unit);

  async function send(figures: LimitFigures | null): Promise<void> {
    setSending(figures === null ? "remove" : "set");
    try {
      await onChange({ [dimension.name]: figures });
      toastDone(figures === null ? `${dimension.label}: ${whose} limit removed.` : `${dimension.label}: limit set.`);
      onClose();
    } catch {
      // Told in a toast; the form stays as it is.
    } finally {
      setSending(null);
    }
  }

  const submit = form.onSubmit((typed) => {
    const figures = { value: readAmount(typed.value, unit) ?? 0, burst: readAmount(typed.burst, unit) };
    void send(figures);
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        <Text fz="sm">{dimension.help}</Text>
        <TextInput
          label="Limit"
          description={unit === "bytes" ? "Bytes, or such as 50 GiB." : "A whole number, or such as 4 million."}
          data-autofocus
          autoComplete="off"
          {...form.getInputProps("value")}
        />
        {hasBurst && (
          <TextInput
            label="Burst"
            description="How much may come at once. Empty: a minute's worth."
            autoComplete="off"
            {...form.getInputProps("burst")}
          />
        )}
        <Consequence value={value} edited={edited} />
        <Group justify="space-between" gap="xs">
          <div>
            {canRemove && own !== null && (
              <Button variant="default" loading={sending === "remove"} onClick={() => void send(null)}>
                Remove
              </Button>
            )}
          </div>
          <Group gap="xs">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={sending === "set"}>
              Set
            </Button>
          </Group>
        </Group>
      </Stack>
    </form>
  );
}

/** What the typed figure will do; always there, so that the buttons stay where they are. */
function Consequence({ value, edited }: { value: number | null; edited: LimitToEdit }) {
  const { dimension, otherwise, canRemove } = edited;
  const { unit } = dimension;
  if (value === 0) {
    return (
      <Alert color="yellow" variant="light" p="xs">
        0 blocks it: nothing is let through.
      </Alert>
    );
  }
  if (value !== null && canRemove && value > otherwise.value) {
    return (
      <Alert color="yellow" variant="light" p="xs">
        More than the plan allows, {amount(otherwise.value, unit)}: the smaller of the two holds.
      </Alert>
    );
  }
  return (
    <Alert color="gray" variant="light" p="xs">
      {value === null ? "…" : `${exactAmount(value, unit)} from the next request on.`}
    </Alert>
  );
}
