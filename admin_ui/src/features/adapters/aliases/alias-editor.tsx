import { Stack, Switch, Text, TextInput } from "@mantine/core";
import { useForm, type UseFormReturnType } from "@mantine/form";
import { useState } from "react";

import type { Adapter, Alias } from "@/api/types";
import { FormActions } from "@/components/layout/form-actions";

import { ConflictNotice } from "./conflict-notice";
import { draftBody, draftOf, draftProblems, draftTargets, type Draft } from "./draft";
import { GuardFields } from "./guard-fields";
import { TargetFields } from "./target-fields";
import { useAliasChange } from "./use-alias-change";
import { WeightBar } from "./weight-bar";

export type DraftForm = UseFormReturnType<Draft>;

const CANARY_SHARE = 10;

interface AliasEditorProps {
  slug: string;
  adapter: Adapter;
  /** null = a new one. */
  alias: Alias | null;
  startsCanary?: boolean;
  onDone: () => void;
}

/** Everything an alias says, in one form. When somebody else was faster, it starts again from what holds now. */
export function AliasEditor({ slug, adapter, alias, startsCanary = false, onDone }: AliasEditorProps) {
  const ready = adapter.versions.filter(({ state }) => state === "ready").map(({ number }) => number);
  const newest = ready.length === 0 ? null : Math.max(...ready);
  const [base, setBase] = useState(alias);
  const [conflict, setConflict] = useState<{ before: Alias | null; now: Alias | null } | null>(null);
  const change = useAliasChange({ slug, name: adapter.name });
  const form: DraftForm = useForm<Draft>({
    initialValues: startsCanary ? withCanary(draftOf(alias, newest), ready) : draftOf(alias, newest),
    validate: draftProblems,
  });

  const submit = form.onSubmit((draft) => {
    const order = { alias: draft.alias, revision: base?.revision ?? 0 };
    change.mutate(
      { ...order, change: { kind: "set", body: draftBody(draft) } },
      {
        onSuccess: (outcome) => {
          if (!outcome.conflict) onDone();
          else {
            setConflict({ before: base, now: outcome.now });
            setBase(outcome.now);
            form.setValues({ ...draftOf(outcome.now, newest), alias: draft.alias, reason: draft.reason });
          }
        },
      },
    );
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack gap="md">
        {conflict && <ConflictNotice {...conflict} />}
        {alias === null && (
          <TextInput
            label="Name"
            description="Requests name it after an @, as in the model NAME@staging."
            placeholder="staging"
            required
            data-autofocus
            autoComplete="off"
            spellCheck={false}
            {...form.getInputProps("alias")}
          />
        )}
        <TargetFields form={form} ready={ready} />
        <WeightBar targets={draftTargets(form.values)} />
        <Switch
          label="A user stays on one version"
          description="Whoever sends the same user or safety_identifier gets the same version, as long as the shares stay."
          {...form.getInputProps("sticky", { type: "checkbox" })}
        />
        <GuardFields form={form} />
        <TextInput
          label="Reason"
          description="Kept in the alias's history."
          maxLength={500}
          autoComplete="off"
          {...form.getInputProps("reason")}
        />
        <Text fz="xs" c="dimmed">
          The engine loads every version first; only then does the alias move.
        </Text>
        <FormActions submit="Save" sending={change.isPending} onCancel={onDone} />
      </Stack>
    </form>
  );
}

/** The draft with the newest other version on trial. */
function withCanary(draft: Draft, ready: readonly number[]): Draft {
  const taken = new Set([draft.main, ...draft.others.map(({ version }) => version)]);
  const newest = ready.toSorted((a, b) => b - a).find((number) => !taken.has(String(number)));
  if (newest === undefined) return draft;
  return { ...draft, others: [...draft.others, { version: String(newest), weight: CANARY_SHARE }] };
}
