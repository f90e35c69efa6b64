import { ActionIcon, Button, Group, Input, NumberInput, Select, Stack, Text } from "@mantine/core";

import { CloseIcon, PlusIcon } from "@/components/icons";

import type { DraftForm } from "./alias-editor";
import { mainShare } from "./draft";
import { MAX_TARGETS, PRESETS } from "./shares";

interface TargetFieldsProps {
  form: DraftForm;
  ready: readonly number[];
}

/** The main version takes what the others leave, so the shares always add up. */
export function TargetFields({ form, ready }: TargetFieldsProps) {
  const { others, main } = form.values;
  const chosen = [main, ...others.map(({ version }) => version)];
  const choices = [...new Set([...ready.map(String), ...chosen.filter((each) => each !== null)])]
    .toSorted((a, b) => Number(b) - Number(a))
    .map((number) => ({
      value: number,
      label: ready.includes(Number(number)) ? `Version ${number}` : `Version ${number} (not ready)`,
    }));
  const unused = ready.toSorted((a, b) => b - a).find((number) => !chosen.includes(String(number)));
  return (
    <Stack gap="sm">
      <Group gap="sm" align="flex-start" wrap="nowrap">
        <Select
          label="Version"
          data={choices}
          allowDeselect={false}
          style={{ flex: 1 }}
          {...form.getInputProps("main")}
        />
        <Input.Wrapper label="Share" labelElement="div" w={142}>
          <Text fz="sm" lh="36px" data-testid="main-share">
            {mainShare(form.values)} %
          </Text>
        </Input.Wrapper>
      </Group>
      {others.map((_, index) => (
        <Trial key={index} form={form} index={index} choices={choices} />
      ))}
      {others.length < MAX_TARGETS - 1 && unused !== undefined && (
        <Group>
          <Button
            size="compact-sm"
            variant="subtle"
            leftSection={<PlusIcon />}
            onClick={() => {
              form.insertListItem("others", { version: String(unused), weight: 10 });
            }}
          >
            {others.length === 0 ? "Send a share to another version" : "Another version"}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

interface TrialProps {
  form: DraftForm;
  index: number;
  choices: { value: string; label: string }[];
}

function Trial({ form, index, choices }: TrialProps) {
  const weight = form.values.others[index]?.weight;
  return (
    <Stack gap={6} data-testid={`trial-${index}`}>
      <Group gap="sm" align="flex-start" wrap="nowrap">
        <Select
          aria-label={`Version on trial ${index + 1}`}
          data={choices}
          allowDeselect={false}
          style={{ flex: 1 }}
          {...form.getInputProps(`others.${index}.version`)}
        />
        <NumberInput
          aria-label={`Share of the version on trial ${index + 1}`}
          suffix=" %"
          min={1}
          max={99}
          allowDecimal={false}
          allowNegative={false}
          clampBehavior="none"
          w={96}
          {...form.getInputProps(`others.${index}.weight`)}
        />
        <ActionIcon
          variant="subtle"
          color="gray"
          size="lg"
          aria-label={`Leave out the version on trial ${index + 1}`}
          onClick={() => {
            form.removeListItem("others", index);
          }}
        >
          <CloseIcon />
        </ActionIcon>
      </Group>
      <Group gap={6}>
        {PRESETS.map((preset) => (
          <Button
            key={preset}
            size="compact-xs"
            variant={Number(weight) === preset ? "filled" : "default"}
            aria-pressed={Number(weight) === preset}
            onClick={() => {
              form.setFieldValue(`others.${index}.weight`, preset);
            }}
          >
            {preset} %
          </Button>
        ))}
      </Group>
    </Stack>
  );
}
