import { Checkbox, MultiSelect, SimpleGrid, Stack, Textarea, TextInput } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";

import { useAdapters } from "@/features/adapters/use-adapters";

import { SCOPES } from "../scopes";
import type { KeyDraft } from "./draft";

export function KeyFields({ slug, form }: { slug: string; form: UseFormReturnType<KeyDraft> }) {
  const adapters = useAdapters(slug).data?.data ?? [];
  const names = new Set([...adapters.map(({ name }) => name), ...form.values.adapters]);
  return (
    <Stack gap="md">
      <TextInput
        label="Name"
        description="Says what uses the key, so that you know what stops when you revoke it."
        placeholder="support-bot production"
        required
        maxLength={100}
        data-autofocus
        autoComplete="off"
        {...form.getInputProps("name")}
      />
      <Checkbox.Group label="Scopes" description="What the key may do." {...form.getInputProps("scopes")}>
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing={8} mt="xs">
          {SCOPES.map(({ value, label }) => (
            <Checkbox key={value} value={value} label={value} description={label} />
          ))}
        </SimpleGrid>
      </Checkbox.Group>
      <MultiSelect
        label="Only these adapters"
        description="Empty: all adapters of the tenant, and the base model."
        data={[...names].toSorted()}
        searchable
        clearable
        clearButtonProps={{ "aria-label": "Clear adapters" }}
        nothingFoundMessage="No such adapter"
        {...form.getInputProps("adapters")}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="md">
        <Textarea
          label="Only from these networks"
          description="Addresses or networks, one a line. Empty: from anywhere."
          placeholder="192.0.2.0/24"
          rows={2}
          spellCheck={false}
          {...form.getInputProps("networks")}
        />
        <TextInput
          type="date"
          label="Last day"
          description="Works to the end of that day (UTC). Empty: never expires."
          {...form.getInputProps("expires")}
        />
      </SimpleGrid>
    </Stack>
  );
}
