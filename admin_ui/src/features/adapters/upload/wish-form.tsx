import { Checkbox, SimpleGrid, Stack, TextInput } from "@mantine/core";

import { Panel } from "@/components/layout/panel";

import { useAdapters } from "../use-adapters";
import { nameProblem } from "./file-set";

export interface WishFields {
  adapter: string;
  movesAlias: boolean;
  alias: string;
  description: string;
}

interface WishFormProps {
  slug: string;
  fields: WishFields;
  disabled: boolean;
  onChange: (fields: WishFields) => void;
}

/** What the version is to be: whose, under which alias, described how. */
export function WishForm({ slug, fields, disabled, onChange }: WishFormProps) {
  const existing = useAdapters(slug).data?.data.find(({ name }) => name === fields.adapter);
  const next = Math.max(0, ...(existing?.versions ?? []).map(({ number }) => number)) + 1;
  const change = (changed: Partial<WishFields>) => {
    onChange({ ...fields, ...changed });
  };
  return (
    <Panel>
      <Stack gap="md">
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="md">
          <TextInput
            label="Adapter"
            description={existing === undefined ? "A new name makes a new adapter." : `It becomes version ${next}, if its content is new.`}
            placeholder="support-bot"
            required
            autoComplete="off"
            spellCheck={false}
            disabled={disabled}
            value={fields.adapter}
            error={fields.adapter === "" ? null : nameProblem(fields.adapter)}
            onChange={(event) => {
              change({ adapter: event.currentTarget.value });
            }}
          />
          <TextInput
            label="Description"
            description="Shown beside the version."
            placeholder="trained on the March tickets"
            maxLength={1000}
            autoComplete="off"
            disabled={disabled}
            value={fields.description}
            onChange={(event) => {
              change({ description: event.currentTarget.value });
            }}
          />
        </SimpleGrid>
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="md">
          <Checkbox
            label="Point an alias at it when it is ready"
            description="Without it, only the first version of an adapter goes live by itself."
            disabled={disabled}
            checked={fields.movesAlias}
            onChange={(event) => {
              change({ movesAlias: event.currentTarget.checked });
            }}
          />
          {fields.movesAlias && (
            <TextInput
              aria-label="Alias"
              placeholder="live"
              autoComplete="off"
              spellCheck={false}
              disabled={disabled}
              value={fields.alias}
              error={nameProblem(fields.alias) === null ? null : "Lower-case letters, digits, dots, underscores, hyphens."}
              onChange={(event) => {
                change({ alias: event.currentTarget.value });
              }}
            />
          )}
        </SimpleGrid>
      </Stack>
    </Panel>
  );
}
